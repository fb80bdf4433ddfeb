"""Sizes that are tensors on the GPU, as vision-language models have those of their images; then a step, so that a rehearsal ends."""

import torch
import torch.nn.functional as F

grids = torch.tensor([[1, 8, 6], [2, 4, 4]]).cuda()
for _, height, width in grids:
    rows, columns = height // 2, width // 2
    pad = 5 - rows % 5
    index = torch.arange(rows * columns).reshape(rows, columns)
    padded = F.pad(index, (0, pad, 0, pad), "constant", -100)
    cut = padded[:rows, :columns]
    wide = torch.ones(4, 1).expand(4, columns).repeat(rows, 1)
    part = torch.ones(8, device="cuda").view(rows - rows + 2, -1).narrow(1, 0, columns)
    halves = torch.arange(0, 1, 1 / rows.float(), device="cuda")
    print("shapes", *(tuple(t.shape) for t in (index, padded, cut, wide, part, halves, torch.zeros(2, rows, device="cuda"))))
ends = torch.repeat_interleave(grids[:, 1] * grids[:, 2], grids[:, 0]).cumsum(0)
ends = torch.unique_consecutive(torch.cat([ends, ends[-1:]]))
# A text that was generated ends at its last token, which nobody draws: each is as long as it may be, as TRL's GRPO cuts them.
drawn = torch.rand(4, 8, 100, device="cuda").argmax(-1)
is_last = drawn == 2
lengths = torch.full((4,), 8, device="cuda")
lengths[is_last.any(1)] = is_last.int().argmax(1)[is_last.any(1)]
print("drawn", lengths.tolist(), torch.arange(8, device="cuda").expand(4, -1).lt(lengths.unsqueeze(1)).sum(1).tolist(), (drawn != 2).all().item())
images = torch.tensor([2, 0, 2, 2]).cuda()
different, counts = images.unique(return_counts=True)
print("most", tuple(torch.zeros(2, counts.max(), device="cuda").shape), different.tolist(), torch.unique(images > 0).tolist())
print("ends", ends.tolist(), [len(part) for part in torch.ones(80, device="cuda").split((ends - F.pad(ends, (1, 0))[:-1]).tolist())])

model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.ones(2, 4, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
