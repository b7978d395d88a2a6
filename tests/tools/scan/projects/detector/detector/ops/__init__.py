from .box_iou import box_iou

__all__ = ["box_iou", "cuda"]
