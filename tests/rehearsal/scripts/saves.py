"""Trains from a checkpoint and keeps writing checkpoints, as people do: python saves.py

best.pt is replaced, and the folders of steps rotate; what was written is read again.
"""

import os
import pathlib
import shutil

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    """Each worker keeps a cache beside the data."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        pathlib.Path("data", f"cache-{os.getpid()}.txt").write_text(str(index))
        return torch.full((256,), float(index))


def main():
    model = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 1))
    model.load_state_dict(torch.load("best.pt"))
    model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []
    for step, batch in enumerate(DataLoader(Lines(), batch_size=4, num_workers=2)):
        model(batch.cuda()).sum().backward()
        folder = pathlib.Path("checkpoints", f"step-{step}")
        folder.mkdir(parents=True)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "state.pt.new")
        os.replace(folder / "state.pt.new", folder / "state.pt")
        torch.save(model.state_dict(), "best.pt")
        model.load_state_dict(torch.load("best.pt", map_location="cpu"))
        torch.load(folder / "state.pt", mmap=True, map_location="cpu")
        kept.append(folder)
        for old in kept[:-1]:
            shutil.rmtree(old)
        kept = kept[-1:]
        assert [p.name for p in pathlib.Path("checkpoints").iterdir() if p.name != "step-old"] == [folder.name]
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
