import torch
from torch import nn
from torch.utils.data import Dataset


class Shapes(Dataset):
    """Noise with a bright quarter, which is the class."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 4, (size,), generator=generator)
        self.images = torch.rand(size, 1, 8, 8, generator=generator)
        for image, label in zip(self.images, self.labels.tolist()):
            image[0, label // 2 * 4:label // 2 * 4 + 4, label % 2 * 4:label % 2 * 4 + 4] += 0.5

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 4)

    def forward(self, images):
        return self.last(torch.relu(self.first(images.flatten(1))))
