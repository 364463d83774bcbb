"""Pages and figures for people, on datasets, runs of models and curations. No other room depends on them."""
