"""Turns a BERT model exported as ONNX, in a jar of LangChain4j, into the files of sentence-transformers.

    embeddings.py JAR NAME DIR

Reads NAME.onnx and NAME-tokenizer.json of the jar with the standard library alone. ONNX is Protocol Buffers (onnx.proto3):
a linear layer is a MatMul with a nameless, transposed weight, whose result is added to a bias that has its name.
"""

import json
import os
import struct
import sys
import zipfile
from array import array

GRAPH, NODE, INITIALIZER = 7, 1, 5
NODE_INPUT, NODE_OUTPUT, NODE_TYPE = 1, 2, 4
TENSOR_SHAPE, TENSOR_TYPE, TENSOR_NAME, TENSOR_BYTES = 1, 2, 8, 9
FLOAT32 = 1


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """The fields of a message: number and value."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            length = {1: 8, 5: 4}[kind]
            value, at = data[at : at + length], at + length
        yield tag >> 3, value


def shape(data):
    """The dimensions of a tensor, one by one or packed."""
    if isinstance(data, int):
        return [data]
    at, numbers = 0, []
    while at < len(data):
        number, at = varint(data, at)
        numbers.append(number)
    return numbers


def read(onnx):
    """The weights by name, and the nodes as type, inputs and output."""
    (graph,) = [value for number, value in fields(memoryview(onnx)) if number == GRAPH]
    weights, nodes = {}, []
    for number, value in fields(graph):
        parts = list(fields(value)) if number in (NODE, INITIALIZER) else []
        text = lambda wanted: [bytes(part).decode() for n, part in parts if n == wanted]
        if number == NODE:
            nodes.append((text(NODE_TYPE)[0], text(NODE_INPUT), text(NODE_OUTPUT)[0]))
        elif number == INITIALIZER and (TENSOR_TYPE, FLOAT32) in parts:
            size = [one for n, part in parts if n == TENSOR_SHAPE for one in shape(part)]
            numbers = array("f")
            numbers.frombytes(b"".join(bytes(part) for n, part in parts if n == TENSOR_BYTES))
            weights[text(TENSOR_NAME)[0]] = (size, numbers)
    return weights, nodes


def tensors(weights, nodes):
    """The weights under the names that Hugging Face's BERT gives them."""
    named = {name: of for name, of in weights.items() if name.startswith(("embeddings.", "encoder."))}
    biases = {}
    for kind, inputs, _ in nodes:
        if kind == "Add":
            biases.update((value, bias) for value in inputs for bias in inputs if bias in named)
    for kind, inputs, output in nodes:
        for weight in set(inputs) & set(weights) if kind == "MatMul" else ():
            (rows, columns), numbers = weights[weight]
            turned = array("f")
            for column in range(columns):
                turned.extend(numbers[column::columns])
            named[biases[output].removesuffix("bias") + "weight"] = ([columns, rows], turned)
    return dict(sorted(named.items()))


def safetensors(named):
    header, end = {}, 0
    for name, (size, numbers) in named.items():
        start, end = end, end + 4 * len(numbers)
        header[name] = {"dtype": "F32", "shape": size, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(numbers.tobytes() for _, numbers in named.values())


def main(jar, name, out):
    with zipfile.ZipFile(jar) as parts:
        onnx, tokenizer = parts.read(f"{name}.onnx"), parts.read(f"{name}-tokenizer.json")
    named = tensors(*read(onnx))
    pieces = json.loads(tokenizer)["model"]["vocab"]
    width = named["embeddings.LayerNorm.bias"][0][0]
    config = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": width,
        "intermediate_size": named["encoder.layer.0.intermediate.dense.bias"][0][0],
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": named["embeddings.position_embeddings.weight"][0][0],
        # Not in the weights: a head of BERT's small models has 32 numbers.
        "num_attention_heads": width // 32,
        "num_hidden_layers": len({key.split(".")[2] for key in named if key.startswith("encoder.layer.")}),
        "vocab_size": named["embeddings.word_embeddings.weight"][0][0],
    }
    # Its authors let every text begin with one of two words, and take the mean of the last layer.
    prompts = {"prompts": {"query": "query: ", "document": "passage: "}}
    files = {
        "config.json": config,
        "sentence_bert_config.json": {"max_seq_length": 256},
        "config_sentence_transformers.json": prompts,
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
    }
    os.makedirs(f"{out}/1_Pooling")
    for file, content in files.items():
        with open(f"{out}/{file}", "w") as to:
            json.dump(content, to, indent=2)
    with open(f"{out}/vocab.txt", "w") as to:
        to.writelines(f"{piece}\n" for piece in sorted(pieces, key=pieces.get))
    with open(f"{out}/model.safetensors", "wb") as to:
        to.write(safetensors(named))


main(*sys.argv[1:])
