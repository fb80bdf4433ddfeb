"""Fills folders of configurations with random weights and a tokenizer, and makes data sets. trl_folder.py FOLDER..."""

import json
import pathlib
import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

torch.manual_seed(0)
for name in sys.argv[1:]:
    config = AutoConfig.from_pretrained(name)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(name)
    words = {"<pad>": 0, "<s>": 1, "</s>": 2} | {f"w{number}": number for number in range(3, config.vocab_size)}
    split = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    split.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=split, pad_token="<pad>", bos_token="<s>", eos_token="</s>").save_pretrained(name)

# Texts that are cut to the longest allowed, and such that every second one is short, so that batches of two rows end in padding.
for name, counts in (("long", (1200,)), ("mixed", (1200, 200)), ("uneven", (1200, 1000))):
    data = pathlib.Path(name)
    data.mkdir()
    with (data / "train.jsonl").open("w") as file:
        for row in range(256):
            numbers = torch.randint(3, 60, (counts[row % len(counts)],)).tolist()
            file.write(json.dumps({"text": " ".join(f"w{number}" for number in numbers)}) + "\n")

# A chosen and a rejected text, of which one is short.
data = pathlib.Path("pairs")
data.mkdir()
with (data / "train.jsonl").open("w") as file:
    for row in range(256):
        texts = [" ".join(f"w{number}" for number in torch.randint(3, 60, (count,)).tolist()) for count in (1200, 1000)]
        file.write(json.dumps({"prompt": "w3 w4", "chosen": texts[row % 2], "rejected": texts[1 - row % 2]}) + "\n")
