"""Widget of this module on the Hugging Face Hub; README.md names this file."""

from reveal_bench.evaluate_modules import launch_widget

if __name__ == "__main__":
    launch_widget("mask_iou")
