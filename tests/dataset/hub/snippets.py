"""The code that the clients run: with this project for publishers, without it for all others."""

NOT_LOADED = """
    from contextlib import contextmanager
    from unittest.mock import patch
    from reveal_bench.dataset import validate
    @contextmanager
    def not_loaded():  # every rule but loading the folder with `datasets`, which test_refusals and the command try
        with patch.object(validate, "load_problems", return_value=[]):
            with patch.object(validate, "mlcroissant_problems", return_value=[]):
                yield
"""

PUBLISH = (
    NOT_LOADED
    + """
    from dataclasses import asdict
    from reveal_bench.dataset.hub import publish
    from pathlib import Path
    vault = Path(folder).with_name("vault")  # a maintainer has the holdout beside the folder
    options = {"holdout": vault if vault.is_dir() else None, **options}
    with not_loaded():
        result = asdict(publish(folder, repo_id, **options))
"""
)

CHECK_THERE = (
    NOT_LOADED
    + """
    from pathlib import Path
    from reveal_bench.dataset.hub import check_there, prepare
    with not_loaded():
        publication = prepare(folder, repo_id, private=True, holdout=Path(folder).with_name("vault"))
    result = check_there(publication, token=token)
"""
)

PUBLISH_HOLDOUT = (
    NOT_LOADED
    + """
    from dataclasses import asdict
    from reveal_bench.dataset.hub import publish_holdout
    with not_loaded():
        result = asdict(publish_holdout(folder, repo_id, **options))
"""
)

LOAD = """
    from datasets import load_dataset
    rows = load_dataset(repo_id, "localization", split=split, revision=revision, token=token, streaming=streaming)
    result = {row["image_id"]: row["label_status"] for row in rows}
"""

LOADED_AGAIN = """
    import reveal_bench as rb
    from datasets import load_dataset
    rows = load_dataset(repo_id, "localization", split=split, revision=revision, token=token, streaming=streaming)
    bench = rb.load(rows)
    result = {"folder": bench.folder.name, "split": bench.split, "n": len(bench.references)}
"""

EXPLAINED_LOAD = """
    from datasets import load_dataset
    from reveal_bench.dataset.hub import hub_errors
    with hub_errors(repo_id):
        load_dataset(repo_id, "localization", split="validation", revision=revision, token=token)
"""

EXPLAINED_DOWNLOAD = """
    from huggingface_hub import hf_hub_download
    from reveal_bench.dataset.hub import hub_errors
    with hub_errors(repo_id):
        hf_hub_download(repo_id, "README.md", repo_type="dataset", revision=revision, token=token)
"""

CREATE = """
    from huggingface_hub import create_repo
    create_repo(repo_id, repo_type="dataset", private=private, token=token)
"""

PUBLISH_WITHOUT_WAITING = (
    NOT_LOADED
    + """
    from dataclasses import asdict
    from unittest.mock import patch
    from reveal_bench.dataset.hub import publish
    from pathlib import Path
    vault = Path(folder).with_name("vault")  # a maintainer has the holdout beside the folder
    options = {"holdout": vault if vault.is_dir() else None, **options}
    with not_loaded(), patch("time.sleep"):  # the real client waits 1 to 8 s before it tries again
        result = asdict(publish(folder, repo_id, **options))
"""
)

RUN_COMMAND = """
    import os, sys
    from pathlib import Path
    from unittest.mock import patch
    from reveal_bench import cli
    with patch.dict(os.environ, tokens), patch.object(sys, "argv", ["reveal-bench", *words]):
        with patch.object(sys, "stdin", open(os.devnull)):
            try:
                cli.main()
                result = 0
            except SystemExit as end:
                result = end.code or 0
"""
