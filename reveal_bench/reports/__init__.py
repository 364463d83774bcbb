"""Pages and figures for people: of a dataset, of runs of models, of a curation. No other room depends on them."""
