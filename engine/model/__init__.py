"""Model families written out plainly: configuration, weights, layers."""
