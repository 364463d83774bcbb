"""What the clients run: code of this project for publishers, code without it for everybody else."""

PUBLISH = """
    from dataclasses import asdict
    from reveal_bench.builders.hub import publish
    result = asdict(publish(folder, repo_id, **options))
"""

PUBLISH_HOLDOUT = """
    from dataclasses import asdict
    from reveal_bench.builders.hub import publish_holdout
    result = asdict(publish_holdout(folder, repo_id, **options))
"""

LOAD = """
    from datasets import load_dataset
    rows = load_dataset(repo_id, "localization", split=split, revision=revision, token=token, streaming=streaming)
    result = {row["image_id"]: row["label_status"] for row in rows}
"""

EXPLAINED_LOAD = """
    from datasets import load_dataset
    from reveal_bench.builders.hub import hub_errors
    with hub_errors(repo_id):
        load_dataset(repo_id, "localization", split="validation", revision=revision, token=token)
"""

EXPLAINED_DOWNLOAD = """
    from huggingface_hub import hf_hub_download
    from reveal_bench.builders.hub import hub_errors
    with hub_errors(repo_id):
        hf_hub_download(repo_id, "README.md", repo_type="dataset", revision=revision, token=token)
"""

CREATE = """
    from huggingface_hub import create_repo
    create_repo(repo_id, repo_type="dataset", private=private, token=token)
"""

PUBLISH_WITHOUT_WAITING = """
    from dataclasses import asdict
    from unittest.mock import patch
    from reveal_bench.builders.hub import publish
    with patch("time.sleep"):  # the real client waits 1 to 8 s before it tries again
        result = asdict(publish(folder, repo_id, **options))
"""
