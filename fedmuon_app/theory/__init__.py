"""The paper's theorems as experiments: small federations with a closed form, on the algorithms alone."""
