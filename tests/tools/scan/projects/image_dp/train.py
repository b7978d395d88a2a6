"""Trains a small classifier on all GPUs: python train.py --epochs 3."""
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from shapes import Net, Shapes
from utils.checkpoint import save_checkpoint


def evaluate(model, loader, device):
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--out", default="checkpoint.pt")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(0)
    train_loader = DataLoader(Shapes(96, seed=0), batch_size=args.batch_size, shuffle=True,
                              drop_last=True)
    val_loader = DataLoader(Shapes(32, seed=1), batch_size=args.batch_size)
    model = nn.DataParallel(Net(), device_ids=list(range(torch.cuda.device_count())))
    model = model.to(device)
    print(f"{max(1, torch.cuda.device_count())} devices, batches of {args.batch_size}")
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(args.epochs):
        model.train()
        for images, labels in train_loader:
            loss = criterion(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: accuracy {evaluate(model, val_loader, device):.4f}")
        save_checkpoint(model, optimizer, epoch, args.out)


if __name__ == "__main__":
    main()
