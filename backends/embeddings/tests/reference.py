"""Reference numbers for tests/reference.rs, by other programs: word pieces by Hugging Face's `tokenizers`, vectors by
NumPy in 64-bit floats from the same weights. pip install numpy tokenizers, then:
    python3 reference.py target/embeddings > reference.json"""
import json, math, struct, sys
import numpy as np
from tokenizers import BertWordPieceTokenizer

DIR = sys.argv[1]
TEXTS = [
    "The deadline of project Bodafu is Friday.",
    "When must project Bodafu be finished?",
    "RSI > 70 → exit",
    "Größe, naïve résumé: ﬁn ½ «ok» İstanbul",
    "北京 is a city; カタカナ and 한국어, too",
    "a\u0000b\u200dc\ufffd\ttab\u00a0nbsp x_y~z$1 don't",
    "unaffableness supercalifragilisticexpialidocious " + "q" * 101,
    "NVDA fell after the earnings call. " * 60,
    "fn main() { println!(\"{:?}\", x.iter().map(|y| y + 1)); } // 🦀",
]

LAYERS = json.load(open(f"{DIR}/config.json"))["num_hidden_layers"]
PROMPTS = json.load(open(f"{DIR}/config_sentence_transformers.json"))["prompts"]
raw = open(f"{DIR}/model.safetensors", "rb").read()
header = struct.unpack("<Q", raw[:8])[0]
W = {}
for name, info in json.loads(raw[8 : 8 + header]).items():
    if name != "__metadata__" and info["dtype"] == "F32":
        start, end = info["data_offsets"]
        W[name] = np.frombuffer(raw[8 + header + start : 8 + header + end], "<f4").reshape(info["shape"]).astype(np.float64)

erf = np.vectorize(math.erf)
unit = lambda v: v / np.linalg.norm(v)
linear = lambda x, name: x @ W[name + ".weight"].T + W[name + ".bias"]

def norm(x, name):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-12) * W[name + ".weight"] + W[name + ".bias"]

def embed(ids):
    n = len(ids)
    e = "embeddings."
    x = W[e + "word_embeddings.weight"][ids] + W[e + "position_embeddings.weight"][:n] + W[e + "token_type_embeddings.weight"][0]
    x = norm(x, e + "LayerNorm")
    for l in range(LAYERS):
        p = f"encoder.layer.{l}."
        q, k, v = (linear(x, p + f"attention.self.{w}").reshape(n, 12, 32).transpose(1, 0, 2) for w in ("query", "key", "value"))
        s = q @ k.transpose(0, 2, 1) / math.sqrt(32)
        s = np.exp(s - s.max(-1, keepdims=True))
        s /= s.sum(-1, keepdims=True)
        x = norm(x + linear((s @ v).transpose(1, 0, 2).reshape(n, 384), p + "attention.output.dense"), p + "attention.output.LayerNorm")
        h = linear(x, p + "intermediate.dense")
        h = h * 0.5 * (1 + erf(h / math.sqrt(2)))
        x = norm(x + linear(h, p + "output.dense"), p + "output.LayerNorm")
    return unit(x.mean(0))

tokenizer = BertWordPieceTokenizer(f"{DIR}/vocab.txt", lowercase=True)
tokenizer.enable_truncation(256)
pieces = lambda text, kind: tokenizer.encode(PROMPTS[kind] + text).ids
UNRELATED = open(__file__.replace("tests/reference.py", "src/unrelated.txt")).read().splitlines()
centre = np.mean([embed(pieces(line, "query" if line[-1] == "?" else "document")) for line in UNRELATED], 0)
vectors, cases = [], []
for text in TEXTS:
    ids = pieces(text, "document")
    v = unit(embed(ids) - centre)
    vectors.append(v)
    cases.append({"text": text, "tokens": ids, "vector": [round(float(c), 6) for c in v]})
print("[")
print(",\n".join(json.dumps(c) for c in cases))
print("]")
print(f"cosine of the first two: {vectors[0] @ vectors[1]:.4f}; of the first and third: {vectors[0] @ vectors[2]:.4f}", file=sys.stderr)
