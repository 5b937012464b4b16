"""`trilemma fit`: makes what encoders read.

trilemma fit static --out FOLDER
trilemma fit topics --labels FILE.csv --encoder static --out FILE.safetensors
trilemma fit topics --labels FILE.csv --encoder endpoint:NAME --config FILE.yaml --out FILE.safetensors
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.config.load import load
from gateway.config.problems import ConfigError
from gateway.engines.embeddings import OFF_LINE_S, Unanswered, endpoints


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 it could not be done, 2 the command was called wrongly."""
    args = _parser().parse_args(argv)
    try:
        said: str = args.run(args)
    except (ValueError, OSError, ConfigError, Unanswered) as error:
        print(f"trilemma fit {args.what}: {error}", file=sys.stderr)
        return 1
    print(said)
    return 0


def _parser() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="trilemma fit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_subparsers(dest="what", required=True)

    static = which.add_parser("static", help="a static embedding out of MiniLM, in model2vec's format; some minutes of one core")
    static.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the files go; what has their names is replaced")
    static.add_argument("--source", type=Path, metavar="FOLDER", help="model.safetensors and tokenizer.json (default: the packaged MiniLM)")
    static.add_argument("--dim", type=int, default=64, help="numbers of a token's vector (default: 64)")
    static.set_defaults(run=_static)

    topics = which.add_parser("topics", help="soft topics out of labelled texts")
    topics.add_argument(
        "--labels", type=Path, required=True, metavar="FILE", help="CSV with the columns `text` and `label`, 2 to 14 labels"
    )
    topics.add_argument("--encoder", default="static", metavar="NAME", help="whose features they are read from (default: static)")
    topics.add_argument("--config", type=Path, metavar="FILE", help="a configuration that has the endpoint, for --encoder endpoint:NAME")
    topics.add_argument("--out", type=Path, required=True, metavar="FILE", help="a file of safetensors, for `topics:FILE`")
    topics.add_argument("--l2", type=float, default=10.0, help="penalty on the weights of standardised features (default: 10)")
    topics.set_defaults(run=_topics)
    return parser


def _static(args: argparse.Namespace) -> str:
    from models.encoders import distil, extra

    if args.dim < 1:
        raise ValueError("--dim must be 1 or more")
    shown = sys.stderr if sys.stderr.isatty() else None

    def progress(done: int, of: int) -> None:
        if shown is not None:
            print(f"\r{done:,} of {of:,} tokens", end="" if done < of else "\n", file=shown, flush=True)

    distil.distil(args.source or extra.packaged_minilm(), args.out, args.dim, progress)
    return f"written: {args.out}; policies read it as `static:{args.out}`"


def _topics(args: argparse.Namespace) -> str:
    import numpy as np

    from models.encoders.topics import cross_fitted, fit_topics, save
    from policies.encoders import Encoders
    from policies.values.prompt import Prompt, Turn

    texts, labels = _labelled(args.labels)
    given = {} if args.config is None else load(args.config).config.embeddings
    made = Encoders(endpoints(given, OFF_LINE_S))(args.encoder)
    x = np.array([made.encode(Prompt(turns=(Turn("user", text),))) for text in texts])
    topics = fit_topics(x, labels, args.l2)
    folds = min(5, len(texts))
    found = cross_fitted(x, labels, args.l2, folds, 0).argmax(axis=1)
    right = sum(topics.classes[column] == label for column, label in zip(found, labels, strict=True))
    save(topics, made.name, args.encoder, args.out)
    return (
        f"{len(texts):,} texts, {len(topics.classes)} topics: {right / len(texts):.1%} right on texts that were not fitted on\n"
        f"written: {args.out}; policies read it as `topics:{args.out}`"
    )


def _labelled(file: Path) -> tuple[list[str], list[str]]:
    """Texts and labels. Raises ValueError for a file that has none, OSError for one that cannot be read."""
    with file.open(newline="", encoding="utf-8") as opened:
        reader = csv.DictReader(opened)
        if not {"text", "label"} <= set(reader.fieldnames or ()):
            raise ValueError(f"{file} needs the columns `text` and `label`")
        rows = [(row["text"] or "", (row["label"] or "").strip()) for row in reader]
    missing = [number for number, (_, label) in enumerate(rows, 2) if not label]
    if missing:
        raise ValueError(f"{file}: row {missing[0]} has no label")
    if not rows:
        raise ValueError(f"{file} has no rows")
    return [text for text, _ in rows], [label for _, label in rows]
