"""Scripts that are captured (capture_scripts/), the plans that each is held against, and scripts that cannot be captured."""

from __future__ import annotations

from dataclasses import dataclass

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "4")

# The search takes one unit where all fits, so each block is asked to be one.
PLANS = {
    "replicated": ("--strategy", "NO_SHARD", "--activation-checkpointing", "none"),
    "sharded": ("--strategy", "FULL_SHARD", "--activation-checkpointing", "none", "--wrap", "blocks"),
    "hybrid": ("--shard", "2", "--replicate", "2", "--activation-checkpointing", "none", "--wrap", "blocks"),
    "checkpointed": ("--strategy", "FULL_SHARD", "--activation-checkpointing", "full", "--wrap", "blocks"),
    "searched": (),
}
# Plans of some scripts: units inside of blocks, and of modules that are named.
OTHER_PLANS = {
    "inside": ("--strategy", "FULL_SHARD", "--activation-checkpointing", "none", "--wrap", "projections"),
    "apart": ("--strategy", "FULL_SHARD", "--activation-checkpointing", "none", "--wrap", "encoder,refine,head"),
}


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    words: tuple[str, ...]  # the script and what it is told
    launcher: tuple[str, ...] = ()  # of Python
    options: tuple[str, ...] = ()  # of the capture
    is_quick: bool = False  # captured_scripts_test.py runs it, 14 s of CPU each
    quick_plans: tuple[str, ...] = ("hybrid", "checkpointed")
    refusal: str = ""  # part of the sentence that is printed in place of a capture
    packages: str = "published-models"  # the environment of its libraries


def _published(name: str, title: str, *words: str, is_quick: bool = False) -> Case:
    return Case("-".join((name, *words)).lower(), title, ("published.py", name, *words), is_quick=is_quick)


def _finetuned(script: str, title: str, *words: str, is_quick: bool = False, refusal: str = "",
               quick_plans: tuple[str, ...] = Case.quick_plans) -> Case:
    name = "-".join((script, *words)).lower().replace("_", "-")
    return Case(name, title, (f"{script}.py", *words), is_quick=is_quick, quick_plans=quick_plans, refusal=refusal, packages="finetuning")


def _by_hand(name: str, title: str, is_quick: bool = False, refusal: str = "", quick_plans: tuple[str, ...] = Case.quick_plans) -> Case:
    return Case(name.lower(), title, ("by_hand.py", name), is_quick=is_quick, quick_plans=quick_plans, refusal=refusal)


def _habit(name: str, title: str, is_quick: bool = False, quick_plans: tuple[str, ...] = Case.quick_plans, refusal: str = "") -> Case:
    return Case(f"habit-{name}", title, ("habits.py", name), is_quick=is_quick, quick_plans=quick_plans, refusal=refusal)


CASES = (
    _published("Llama", "Llama"),
    _published("Qwen2", "Qwen2, tied embeddings", "tied", is_quick=True),
    _published("Qwen3", "Qwen3"),
    _published("Mistral", "Mistral"),
    _published("Gemma2", "Gemma 2"),
    _published("Phi3", "Phi-3"),
    _published("Mixtral", "Mixtral"),
    _published("Qwen3Moe", "Qwen3-MoE"),
    _published("GPT2", "GPT-2, dropout"),
    _published("BERT", "BERT, dropout"),
    _published("T5", "T5, dropout"),
    _published("Whisper", "Whisper"),
    _published("ViT", "ViT"),
    _published("Swin", "Swin"),
    _published("ConvNext", "ConvNeXt"),
    _published("Wav2Vec2", "Wav2Vec2, dropout"),
    _published("resnet50", "torchvision's ResNet-50, fp32, SGD with momentum", "float32", "sgd"),
    _published("Qwen2", "Qwen2, fp32 under autocast", "autocast", is_quick=True),
    _published("GPT2", "GPT-2, fp32", "float32"),
    _published("Llama", "Llama, frozen embedding", "frozen"),
    _published("Llama", "Llama, gradient_checkpointing_enable()", "recomputes"),
    _by_hand("Decoder", "a decoder by hand"),
    _by_hand("Recomputed", "a decoder that checkpoints its layers by torch.utils.checkpoint", is_quick=True),
    _by_hand("Chunked", "a loss in chunks", is_quick=True),
    _by_hand("TwoLosses", "two losses"),
    _by_hand("OwnFunction", "an autograd.Function of its own", is_quick=True),
    _by_hand("FusedHead", "a loss that works out its gradients in its forward", is_quick=True),
    _by_hand("DiT", "a diffusion Transformer, fp32"),
    _by_hand("DLRM", "a DLRM, fp32"),
    _by_hand("UNet", "a U-Net, fp32", is_quick=True),
    _by_hand("MLP", "an MLP, fp32"),
    _by_hand("LoRA", "LoRA by hand", is_quick=True),
    _by_hand("Speech", "a CTC loss and a parameter without dimensions, fp32", is_quick=True, quick_plans=("sharded",)),
    _by_hand("Shared", "a layer that runs twelve times, as ALBERT's, fp32", is_quick=True),
    _by_hand("Recurrent", "an encoder and a layer that run several times in a row, fp32", is_quick=True, quick_plans=("inside", "apart")),
    Case("qwen3-tts", "Qwen3-TTS, whose fine-tuning calls parts of the model", ("qwen3_tts.py",), is_quick=True,
         quick_plans=("checkpointed",)),
    Case("llava", "LLaVA", ("vision_language.py", "llava"), is_quick=True, quick_plans=("hybrid",)),
    Case("smolvlm", "SmolVLM", ("vision_language.py", "smolvlm")),
    Case("qwen2-5-vl", "Qwen2.5-VL", ("vision_language.py", "qwen2_5_vl"), is_quick=True, quick_plans=("sharded",)),
    _habit("between", "an MLP that clears gradients between loss and backward, fp32", is_quick=True, quick_plans=("replicated", "checkpointed")),
    _habit("after_forward", "an MLP that clears gradients in front of the loss, fp32"),
    _habit("by_hand", "an MLP that clears gradients by hand, fp32"),
    _habit("kept", "an MLP that zeroes gradients where they lie, fp32", is_quick=True, quick_plans=("replicated", "hybrid")),
    _habit("data", "an MLP whose data lies on the GPU, fp32", is_quick=True, quick_plans=("sharded",)),
    _habit("data_parallel", "an MLP in DataParallel, fp32", is_quick=True, quick_plans=("hybrid",)),
    _habit("compiled", "an MLP that is compiled, fp32", is_quick=True, quick_plans=("checkpointed",)),
    Case("autoencoder", "two models, one optimizer, fp32", ("parts.py", "autoencoder")),
    Case("prompted", "a table that is called beside its model", ("parts.py", "prompted")),
    Case("evaluated-parts", "parts of a model, evaluated between steps", ("parts.py", "evaluated"), is_quick=True, quick_plans=("sharded",)),
    Case("headed", "blocks that share an activation and a table, a head that runs in the loss, a model that was tried on the CPU",
         ("parts.py", "headed"), is_quick=True, quick_plans=("sharded", "checkpointed")),
    Case("gan", "a GAN, its critic 5 times, fp32", ("../scripts/gan.py",)),
    Case("turns", "a GAN, fp32", ("turns.py", "mlp"), is_quick=True, quick_plans=("hybrid", "checkpointed")),
    Case("turns-dcgan", "a DCGAN, fp32", ("turns.py", "dcgan"), is_quick=True, quick_plans=("sharded",)),
    Case("turns-critic", "a WGAN, its critic 3 times, fp32", ("turns.py", "critic")),
    Case("turns-frozen", "a GAN whose discriminator is frozen while the generator learns, fp32", ("turns.py", "frozen")),
    Case("turns-ddp", "a GAN, DDP, autocast", ("turns.py", "ddp"), TORCHRUN, ("--gpus", "4")),
    Case("turns-generator-first", "a GAN whose generator learns first, fp32", ("turns.py", "generator_first")),
    Case("accumulates", "Qwen2, 4 micro-batches", ("loops.py", "accumulates")),
    Case("evaluates", "Qwen2, evaluation between steps", ("loops.py", "evaluates")),
    Case("ddp", "Qwen2, DDP, autocast, 2 micro-batches", ("loops.py", "ddp"), TORCHRUN, ("--gpus", "4")),
    Case("trainer", "Qwen2, transformers' Trainer, bf16=True", ("loops.py", "trainer")),
    Case("accelerate", "Qwen2, accelerate, mixed_precision=bf16", ("loops.py", "accelerated")),
    _finetuned("adapters", "Llama, PEFT's LoRA, adapters in fp32"),
    _finetuned("adapters", "Llama, PEFT's LoRA, adapters in bf16, dropout", "bf16", "dropout"),
    _finetuned("adapters", "Llama, PEFT's LoRA, inputs that require gradients", "recomputable", is_quick=True),
    _finetuned("adapters", "Llama, QLoRA: NF4 stored in bf16", "nf4", is_quick=True),
    _finetuned("adapters", "Llama, QLoRA: NF4 stored in bf16, double quantization, adapters in bf16", "nf4", "double", "bf16"),
    _finetuned("adapters", "Llama, QLoRA: NF4, prepare_model_for_kbit_training, autocast", "nf4", "double", "prepared", "autocast"),
    _finetuned("trainers", "Llama, the Trainer of transformers 5, bf16=True", "plain"),
    _finetuned("trainers", "Llama, the Trainer of transformers 5, bf16=True, 2 micro-batches", "plain", "accumulates"),
    _finetuned("trainers", "Llama, TRL's SFTTrainer", "sft", is_quick=True, quick_plans=("checkpointed",)),
    _finetuned("trainers", "Llama, TRL's SFTTrainer, 2 micro-batches", "sft", "accumulates"),
    _finetuned("trainers", "Llama, TRL's SFTTrainer, LoRA", "sft", "lora"),
    _finetuned("trainers", "Llama, TRL's DPOTrainer, a reference model", "dpo", is_quick=True, quick_plans=("hybrid",)),
    _finetuned("trainers", "Llama, TRL's DPOTrainer, LoRA", "dpo", "lora"),
    _finetuned("fused", "Llama, Liger's kernels", is_quick=True, quick_plans=("checkpointed",)),
    _finetuned("fused", "Llama, Liger's kernels, tied embeddings", "tied"),
    _finetuned("optimizers", "Llama, torch.optim.Muon, and AdamW for the rest", "muon", is_quick=True, quick_plans=("sharded", "hybrid")),
    _finetuned("optimizers", "Llama, wide, fp32, AdamW and then torch.optim.Muon without Nesterov", "muon_behind"),
    _finetuned("optimizers", "Llama, torch.optim.Muon alone", "muon_alone"),
    _finetuned("images", "timm's ViT", "vit"),
    _finetuned("images", "timm's ConvNeXt", "convnext"),
    _finetuned("images", "timm's ResNet", "resnet"),
    _finetuned("images", "diffusers' UNet2DConditionModel, fp32", "unet"),
    _finetuned("images", "diffusers' SD3 Transformer, fp32", "sd3"),
    _finetuned("images", "diffusers' DiT, fp32", "dit"),
)

REFUSED = (
    _by_hand("Sparse", "sparse gradients", is_quick=True, refusal="is sparse (EmbeddingBag with sparse=True)"),
    _by_hand("Sloped", "a loss of slopes, by torch.autograd.grad", is_quick=True, refusal="asks for gradients by torch.autograd.grad in a forward"),
    Case("turns-penalty", "a WGAN with a gradient penalty", ("turns.py", "penalty"), is_quick=True, refusal="a gradient penalty does"),
    Case("turns-kept", "a GAN that clears gradients by hand", ("turns.py", "kept_gradients"), is_quick=True,
         refusal="in another way than by zero_grad()"),
    _habit("by_model", "an MLP that clears gradients by its model, between loss and backward", is_quick=True,
           refusal="by zero_grad() of its model between forward and backward"),
    _habit("too_large", "a batch that does not fit on the card", is_quick=True, refusal="ran out of memory before a step was recorded"),
    _by_hand("LossOnHost", "a loss that is moved to the CPU", refusal="The backward begins with a tensor on the CPU"),
    Case("short", "two steps", ("published.py", "Llama", "short"), refusal="The script ended after 2 steps"),
    Case("only-looks", "no training", ("loops.py", "only_looks"), refusal="The script ended after 0 steps"),
    Case("engine", "accelerate with its FSDP plugin", ("loops.py", "engine"), TORCHRUN, ("--gpus", "4"),
         refusal="its FSDP plugin"),
    _finetuned("optimizers", "AdamW with amsgrad", "amsgrad", refusal="amsgrad=True", is_quick=True),
    _finetuned("optimizers", "torchao's AdamW8bit", "torchao", refusal="keeps states of", is_quick=True),
    _finetuned("optimizers", "Adagrad", "adagrad", refusal="keeps states of"),
    _finetuned("fused", "Llama, Liger's cross entropy behind the head", "apart", refusal="Leave out the check"),
)

# Scripts whose optimizer does not update FSDP2's shards: held against the plan of one GPU without a wrapper.
UNSHARDED = (
    _finetuned("optimizers", "bitsandbytes' AdamW8bit", "bitsandbytes"),
    _finetuned("optimizers", "transformers' Adafactor", "adafactor"),
)
