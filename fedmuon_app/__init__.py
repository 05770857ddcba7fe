"""FedMuon: federated learning with bias-corrected Muon, and its rivals, on Flower."""

__version__ = "0.1.0"
