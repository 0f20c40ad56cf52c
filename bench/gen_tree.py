#!/usr/bin/env python3
"""A tree that looks like source code, the same each time: gen_tree.py DIR [files=50000] [bytes=500e6].

Three levels of folders, sizes log-normal, 1 % binary, 4 % under ignored folders, a .gitignore, and two needles:
NEEDLE_RARE (one line in each 500th file) and `fn handle_` (about one line in 40).
"""
import os
import random
import sys

WORDS = ("let mut value = self.state.get(key) if else return match Some None Ok Err vec string index buffer request response "
         "handler config parse token stream error result async await").split()
EXTENSIONS = ["rs"] * 6 + ["ts"] * 5 + ["py"] * 4 + ["md", "json", "toml", "c", "h"]


def lines(r):
    for i in range(4000):
        indent = "    " * r.randint(0, 3)
        if i % 40 == 0:
            yield f"{indent}fn handle_{r.choice(WORDS).strip('(.)')}_{i}(x: u32) -> Result<()> {{\n"
        elif i % 9 == 0:
            yield "\n"
        else:
            yield indent + " ".join(r.choice(WORDS) for _ in range(r.randint(3, 12))) + ";\n"


def folder(root, i):
    top = "target/debug" if i % 50 == 0 else "node_modules/dep" if i % 50 == 1 else f"crate{i % 40:02d}/src"
    return f"{root}/{top}/m{(i // 40) % 25:02d}"


def content(r, i, size, blocks):
    """(name, bytes)"""
    if i % 100 == 7:
        return f"b{i}.bin", r.randbytes(size)
    parts, length = [], 0
    while length < size:
        parts.append(r.choice(blocks))
        length += len(parts[-1])
    text = "".join(parts)[:size]
    if i % 500 == 123:
        text += f"// NEEDLE_RARE {i}\n"
    return f"f{i}.{r.choice(EXTENSIONS)}", text.encode()


def main():
    root = sys.argv[1]
    files = int(float(sys.argv[2])) if len(sys.argv) > 2 else 50000
    total = float(sys.argv[3]) if len(sys.argv) > 3 else 500e6
    r = random.Random(7)
    pool = list(lines(r))
    blocks = ["".join(r.choice(pool) for _ in range(40)) for _ in range(3000)]
    os.makedirs(root, exist_ok=True)
    with open(f"{root}/.gitignore", "w") as f:
        f.write("target/\nnode_modules/\n*.log\n")
    for i in range(files):
        where = folder(root, i)
        os.makedirs(where, exist_ok=True)
        size = int(min(400e3, r.lognormvariate(0, 1.0) * total / files / 1.65))
        name, data = content(r, i, size, blocks)
        with open(f"{where}/{name}", "wb") as f:
            f.write(data)


main()
