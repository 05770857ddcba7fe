"""FedMuon on Flower, straightforwardly."""
