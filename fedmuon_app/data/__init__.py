"""Data: where images come from, which client holds which, and which minibatch comes when."""
