import torch
from torch.nn import DataParallel


def plain(model):
    return model.module if isinstance(model, DataParallel) else model


def save_checkpoint(model, optimizer, epoch, path):
    torch.save({"epoch": epoch, "model": plain(model).state_dict(), "optimizer": optimizer.state_dict()}, path)
