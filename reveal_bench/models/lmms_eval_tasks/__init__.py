"""lmms_eval_tasks."""
