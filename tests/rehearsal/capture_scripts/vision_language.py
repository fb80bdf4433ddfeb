"""Trains a vision-language model of transformers, random and small, on images and text. vision_language.py NAME"""

import sys

import torch
import transformers as T

NAME = sys.argv[1]
BATCH, SEQUENCE, VOCABULARY, IMAGE = 4, 256, 4000, 3999
TEXT = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": VOCABULARY, "use_cache": False}
VISION = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "image_size": 56, "patch_size": 14}


def llava():
    config = T.LlavaConfig(text_config=T.LlamaConfig(**TEXT), vision_config=T.CLIPVisionConfig(**VISION), image_token_index=IMAGE)
    return T.LlavaForConditionalGeneration(config), 16, {"pixel_values": torch.randn(BATCH, 3, 56, 56)}


def smolvlm():
    config = T.SmolVLMConfig(text_config={"model_type": "llama", **TEXT}, vision_config={**VISION}, image_token_id=IMAGE, scale_factor=2,
                             pad_token_id=0)
    return T.SmolVLMForConditionalGeneration(config), 4, {"pixel_values": torch.randn(BATCH, 1, 3, 56, 56)}


def qwen2_5_vl():
    vision = {"depth": 4, "hidden_size": 128, "intermediate_size": 256, "num_heads": 4, "out_hidden_size": 256, "fullatt_block_indexes": [3]}
    text = {**TEXT, "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12], "rope_type": "default"}}
    config = T.Qwen2_5_VLConfig(text_config=text, vision_config=vision, image_token_id=IMAGE, vision_start_token_id=3998, **{
        k: text[k] for k in ("hidden_size", "vocab_size")})
    grid = torch.tensor([[1, 8, 8]] * BATCH)
    return T.Qwen2_5_VLForConditionalGeneration(config), 16, {"pixel_values": torch.randn(BATCH * 64, 1176), "image_grid_thw": grid}


model, tokens, images = {maker.__name__: maker for maker in (llava, smolvlm, qwen2_5_vl)}[NAME]()
model.to("cuda", torch.bfloat16).train()
images = {name: value.cuda().to(torch.bfloat16) if value.is_floating_point() else value.cuda() for name, value in images.items()}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(10):
    ids = torch.randint(3000, (BATCH, SEQUENCE))
    ids[:, :tokens] = IMAGE
    ids = ids.cuda()
    loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids, **images).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
