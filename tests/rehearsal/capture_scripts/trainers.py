"""Trains a small random Llama in trainers of transformers 5 and TRL. trainers.py plain|sft|dpo [WORD...]: what differs from the plainest"""

import sys
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

NAME, WORDS = sys.argv[1], sys.argv[2:]
BATCH, SEQUENCE, VOCABULARY = 4, 256, 4000
CONFIG = LlamaConfig(hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                     vocab_size=VOCABULARY, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2)
PLAIN = {"per_device_train_batch_size": BATCH, "bf16": True, "max_steps": 20, "report_to": "none", "save_strategy": "no",
         "disable_tqdm": True, "dataloader_pin_memory": False, "gradient_checkpointing": False,
         "gradient_accumulation_steps": 2 if "accumulates" in WORDS else 1}


def tokenizer():
    words = {"<pad>": 0, "<s>": 1, "</s>": 2} | {f"w{number}": number for number in range(3, VOCABULARY)}
    split = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    split.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=split, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def text(count):
    return " ".join(f"w{number}" for number in torch.randint(3, VOCABULARY, (count,)).tolist())


def plain(model, lora):
    from transformers import Trainer, TrainingArguments

    rows = torch.randint(3, VOCABULARY, (100, SEQUENCE)).tolist()
    arguments = TrainingArguments(tempfile.mkdtemp(), **PLAIN)
    return Trainer(model, arguments, train_dataset=Dataset.from_dict({"input_ids": rows, "labels": rows}))


def sft(model, lora):
    from trl import SFTConfig, SFTTrainer

    arguments = SFTConfig(tempfile.mkdtemp(), max_length=SEQUENCE, dataset_num_proc=None, **PLAIN)
    texts = Dataset.from_dict({"text": [text(2 * SEQUENCE) for _ in range(100)]})
    return SFTTrainer(model, arguments, train_dataset=texts, processing_class=tokenizer(), peft_config=lora)


def dpo(model, lora):
    from trl import DPOConfig, DPOTrainer

    # A plan of the long one with adapters offloads, and clipping on the CPU wants a process group that accelerate does not make.
    length = SEQUENCE if lora else 2 * SEQUENCE
    arguments = DPOConfig(tempfile.mkdtemp(), max_length=length, dataset_num_proc=None, **PLAIN)
    pairs = Dataset.from_dict({name: [text(length // 2) for _ in range(100)] for name in ("prompt", "chosen", "rejected")})
    reference = None if lora else LlamaForCausalLM(CONFIG)
    return DPOTrainer(model, reference, arguments, train_dataset=pairs, processing_class=tokenizer(), peft_config=lora)


adapters = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, task_type="CAUSAL_LM", target_modules="all-linear")
{"plain": plain, "sft": sft, "dpo": dpo}[NAME](LlamaForCausalLM(CONFIG), adapters if "lora" in WORDS else None).train()
