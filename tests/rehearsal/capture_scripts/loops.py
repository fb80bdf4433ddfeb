"""Trains a small Qwen2 in loops as people write them. loops.py LOOP"""

import os
import sys

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

LOOP = sys.argv[1]
BATCH, SEQUENCE, VOCABULARY = 4, 256, 4000
CONFIG = Qwen2Config(hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                     vocab_size=VOCABULARY, use_cache=False)


def ids():
    return torch.randint(VOCABULARY, (BATCH, SEQUENCE), device="cuda")


def accumulates(model):
    """Four micro-batches a step, in bfloat16 all through."""
    model.to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(10):
        for _ in range(4):
            batch = ids()
            loss = model(input_ids=batch, labels=batch).loss / 4
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def evaluates(model):
    """Looks at a larger batch after each step."""
    model.to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(10):
        model.train()
        batch = ids()
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            batch = ids()
            model(input_ids=batch, labels=batch)


def ddp(model):
    """DistributedDataParallel, autocast, two micro-batches a step."""
    torch.distributed.init_process_group("nccl")
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    model = torch.nn.parallel.DistributedDataParallel(model.cuda(), device_ids=[device])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(10):
        for _ in range(2):
            batch = ids()
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(input_ids=batch, labels=batch).loss / 2
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    torch.distributed.destroy_process_group()


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        text = torch.randint(VOCABULARY, (SEQUENCE,))
        return {"input_ids": text, "labels": text}


def trainer(model):
    """transformers' own."""
    import tempfile

    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size=BATCH, bf16=True, max_steps=20, report_to="none",
                                  save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False)
    Trainer(model, arguments, train_dataset=Texts()).train()


def accelerated(model):
    """accelerate's loop."""
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16")
    loader = torch.utils.data.DataLoader(Texts(), batch_size=BATCH)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-4), loader)
    for batch in loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


def only_looks(model):
    """Trains nothing."""
    model.cuda()
    with torch.no_grad():
        for _ in range(5):
            model(input_ids=ids())


def engine(model):
    """accelerate shards the model itself."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
    accelerator.prepare(model)


LOOPS = (accumulates, evaluates, ddp, trainer, accelerated, only_looks, engine)
{loop.__name__: loop for loop in LOOPS}[LOOP](Qwen2ForCausalLM(CONFIG))
