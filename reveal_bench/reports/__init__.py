"""Pages and figures for people: of a dataset, of runs of models, of a curation. Nothing is built on them."""
