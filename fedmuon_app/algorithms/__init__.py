"""The paper, in torch alone: pure functions on named tensors. No Flower, no Hydra, no files."""
