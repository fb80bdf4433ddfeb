"""Trains a published model, random and small, in a plain loop. published.py NAME [WORD...]: what differs from the plainest script."""

import sys

import torch
import torch.nn.functional as F
import transformers as T

NAME, WORDS = sys.argv[1], sys.argv[2:]
BATCH, SEQUENCE, VOCABULARY, LAYERS = 4, 256, 4000, 4
SMALL = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "vocab_size": VOCABULARY}
DECODER = {**SMALL, "num_key_value_heads": 2, "use_cache": False}
MIXTURE = {**DECODER, "num_experts_per_tok": 2}
DECODERS = {
    "Llama": DECODER,
    "Qwen2": {**DECODER, "tie_word_embeddings": "tied" in WORDS},
    "Qwen3": {**DECODER, "head_dim": 64},
    "Mistral": DECODER,
    "Gemma2": {**DECODER, "head_dim": 64},
    "Phi3": {**DECODER, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    "Mixtral": {**MIXTURE, "num_local_experts": 4},
    "Qwen3Moe": {**MIXTURE, "num_experts": 8, "moe_intermediate_size": 256, "head_dim": 64},
}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def classifier():
    """A model of images or sounds, and the shape of a sample."""
    if NAME == "ViT":
        config = T.ViTConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=LAYERS, num_attention_heads=4,
                             image_size=64, patch_size=8)
        return T.ViTForImageClassification(config), "pixel_values", (3, 64, 64)
    if NAME == "Swin":
        config = T.SwinConfig(image_size=64, patch_size=4, embed_dim=48, depths=[2, 2, 4], num_heads=[2, 4, 8], window_size=4)
        return T.SwinForImageClassification(config), "pixel_values", (3, 64, 64)
    if NAME == "ConvNext":
        config = T.ConvNextConfig(hidden_sizes=[32, 64, 128, 256], depths=[2, 2, 4, 2])
        return T.ConvNextForImageClassification(config), "pixel_values", (3, 64, 64)
    if NAME == "Wav2Vec2":
        config = T.Wav2Vec2Config(layerdrop=0.0, **SMALL, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, mask_time_prob=0)
        return T.Wav2Vec2ForSequenceClassification(config), "input_values", (8000,)
    raise SystemExit(f"There is no model {NAME}.")


def text_model():
    if NAME in DECODERS:
        return getattr(T, f"{NAME}ForCausalLM")(getattr(T, f"{NAME}Config")(**DECODERS[NAME]))
    if NAME == "GPT2":
        return T.GPT2LMHeadModel(T.GPT2Config(n_embd=256, n_layer=LAYERS, n_head=4, vocab_size=VOCABULARY, use_cache=False))
    if NAME == "BERT":
        return T.BertForMaskedLM(T.BertConfig(**SMALL))
    if NAME == "T5":
        config = T.T5Config(d_model=256, d_ff=512, num_layers=LAYERS, num_heads=4, d_kv=64, vocab_size=VOCABULARY,
                            decoder_start_token_id=0, use_cache=False)
        return T.T5ForConditionalGeneration(config)
    return None


def make():
    """The model, and what makes the batch and the loss of a micro-batch."""
    dtype = torch.float32 if "autocast" in WORDS or "float32" in WORDS else torch.bfloat16
    if (model := text_model()) is not None:
        def of_text():
            ids = torch.randint(VOCABULARY, (BATCH, SEQUENCE), device="cuda")
            return model(input_ids=ids, labels=ids).loss
        return model.to("cuda", dtype), of_text
    if NAME == "Whisper":
        config = T.WhisperConfig(d_model=256, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=4,
                                 decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512, vocab_size=VOCABULARY,
                                 max_source_positions=200, use_cache=False, **ENDS)
        model = T.WhisperForConditionalGeneration(config).to("cuda", dtype)

        def of_speech():
            sound = torch.randn(BATCH, 80, 400, device="cuda", dtype=dtype)
            return model(input_features=sound, labels=torch.ones(BATCH, 32, dtype=torch.int64, device="cuda")).loss
        return model, of_speech
    if NAME == "resnet50":
        import torchvision

        model = torchvision.models.resnet50(num_classes=10).to("cuda", dtype)

        def of_image():
            images = torch.randn(BATCH, 3, 224, 224, device="cuda", dtype=dtype)
            return F.cross_entropy(model(images), torch.randint(10, (BATCH,), device="cuda"))
        return model, of_image
    model, name, shape = classifier()
    model.to("cuda", dtype)

    def of_sample():
        sample = torch.randn(BATCH, *shape, device="cuda", dtype=dtype)
        return model(**{name: sample}, labels=torch.zeros(BATCH, dtype=torch.int64, device="cuda")).loss
    return model, of_sample


model, loss_of = make()
model.train()
if "recomputes" in WORDS:
    model.gradient_checkpointing_enable({"use_reentrant": False})
if "frozen" in WORDS:
    model.get_input_embeddings().weight.requires_grad_(False)
if "sgd" in WORDS:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
else:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for _ in range(2 if "short" in WORDS else 10):
    with torch.autocast("cuda", torch.bfloat16, enabled="autocast" in WORDS):
        loss = loss_of()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
