"""The models of the paper's experiments. Any other torch module is named by ``model._target_``."""
