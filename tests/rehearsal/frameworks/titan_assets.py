"""Makes what torchtitan reads from its own repository, in the current folder: a tokenizer (bytes, without merges) and the data
set c4_test. Neither reaches a size: the model has the vocabulary of its configuration, and texts are cut to whole sequences.
"""

import json
import pathlib

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

MARKS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}


def main() -> None:
    folder = pathlib.Path("tests/assets/tokenizer")
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([], trainers.BpeTrainer(special_tokens=list(MARKS.values()), initial_alphabet=alphabet))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(MARKS))

    folder = pathlib.Path("tests/assets/c4_test")
    folder.mkdir(parents=True, exist_ok=True)
    row = json.dumps({"text": "All happy families are alike. " * 300}) + "\n"
    (folder / "data.json").write_text(row * 50)


if __name__ == "__main__":
    main()
