"""The federation on Flower: the only folder, beside engines/, that knows it."""
