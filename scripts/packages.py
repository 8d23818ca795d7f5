"""The parts of scripts/packages that are not shell.

licences ZIG TARGET…                         prints the licences of the code that the static binaries hold
check FILE…                                  refuses a package without a static program for the machine in its name
wheel VERSION MACHINE BINARY STAGE OUT TEXT  writes a Python wheel: the command, and the SDK if sdk/python is there
npm VERSION DIR TEXT                         writes package.json of the npm package, with the SDK if sdk/typescript is there
registry DIR PORT-FILE                       serves the npm packages in DIR on a free port, as the npm registry does
"""

import base64, collections, hashlib, http.server, io, json, os, pathlib, shutil, struct, subprocess, sys, tarfile, time, tomllib, zipfile


def linked(targets):
    """The packages of other people that the command for these targets is linked from."""
    command = ["cargo", "metadata", "--format-version=1", "--locked"]
    command += [f"--filter-platform={target}" for target in targets]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [ident for ident, package in packages.items() if package["name"] == "harness"]
    seen = set()
    while todo:
        ident = todo.pop()
        if ident in seen:
            continue
        seen.add(ident)
        for dependency in nodes[ident]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                todo.append(dependency["pkg"])
    return sorted((packages[ident] for ident in seen if packages[ident]["source"]), key=lambda package: package["id"])


def licences(zig, targets):
    """Each text once, below the names of the packages that carry it."""
    texts = collections.defaultdict(list)
    for package in linked(targets):
        name = f"{package['name']} {package['version']} ({package['license']})"
        top = pathlib.Path(package["manifest_path"]).parent
        names = ("licen", "copying", "copyright", "notice", "unlicense")
        files = sorted(path for path in top.iterdir() if path.is_file() and path.name.lower().startswith(names))
        if not files:
            texts["(The package holds no text of its licence.)"].append(name)
        for path in files:
            texts[path.read_text(encoding="utf-8", errors="replace").strip()].append(name)
    (musl,) = pathlib.Path(zig).glob("lib/python*/site-packages/ziglang/lib/libc/musl/COPYRIGHT")
    texts[musl.read_text(encoding="utf-8").strip()].append("musl, the C library")
    rust = subprocess.run(["rustc", "--print", "sysroot"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    for path in sorted(pathlib.Path(rust, "share/doc/rust").glob("LICENSE-*")):
        texts[path.read_text(encoding="utf-8").strip()].append("Rust's standard library (MIT OR Apache-2.0)")
    print("The static ctxbench holds code of these packages, under these licences.")
    for text, names in sorted(texts.items(), key=lambda item: item[1]):
        print("\n" + "=" * 80 + "\n" + "\n".join(names) + "\n" + "-" * 80 + "\n\n" + text)


# The names that installers have for a machine, and its number in an ELF header.
MACHINES = {"x86_64": 62, "amd64": 62, "x64": 62, "aarch64": 183, "arm64": 183}


def programs(path):
    """The programs in a package."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return [archive.read(name) for name in archive.namelist() if name.endswith(".data/scripts/ctxbench")]
    data = path.read_bytes()
    if path.suffix == ".deb":
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        files = [member for member in archive if member.isfile() and member.name.endswith("/ctxbench")]
        # A .deb also has the completions for bash in a file of this name.
        return [archive.extractfile(file).read() for file in files if "/completions/" not in file.name]


def check(paths):
    """The program of each package is static, for the machine in the package's name, and the same as in the others."""
    first = {}
    for path in paths:
        machine = next((number for name, number in MACHINES.items() if name in path.name), None)
        found = programs(path)
        if len(found) != (0 if machine is None else 1):
            sys.exit(f"packages: {path} holds {len(found)} programs: a package with a machine in its name has one, others none")
        if machine is None:
            continue
        (data,) = found
        if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", data, 18)[0] != machine:
            sys.exit(f"packages: the program in {path} is not for the machine in the file's name")
        (table,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
        # PT_INTERP names a dynamic linker, which would be of one distribution.
        if any(struct.unpack_from("<I", data, table + i * size)[0] == 3 for i in range(count)):
            sys.exit(f"packages: the program in {path} is not static")
        if first.setdefault(machine, data) != data:
            sys.exit(f"packages: the program in {path} is not that of the other packages for its machine")


def wheel(version, machine, binary, stage, out, summary):
    """A wheel needs no build at its user's: it is a zip file with a list of its files."""
    # A static binary runs with every C library.
    platforms = [f"manylinux_2_17_{machine}", f"manylinux2014_{machine}", f"musllinux_1_1_{machine}"]
    info = f"ctxbench-{version}.dist-info"
    sdk = pathlib.Path("sdk/python")
    project = tomllib.loads((sdk / "pyproject.toml").read_text())["project"] if sdk.exists() else {}
    licences = sorted(pathlib.Path(stage).glob("LICENSE*"))
    head = ["Metadata-Version: 2.4", "Name: ctxbench", f"Version: {version}", f"Summary: {summary}"]
    head += [f"Requires-Python: {project.get('requires-python', '>=3.8')}", "License-Expression: MIT OR Apache-2.0"]
    head += [f"License-File: {path.name}" for path in licences]
    head += [f"Requires-Dist: {requirement}" for requirement in project.get("dependencies", [])]
    for extra, requirements in project.get("optional-dependencies", {}).items():
        head += [f"Provides-Extra: {extra}"] + [f'Requires-Dist: {each}; extra == "{extra}"' for each in requirements]
    readme = (sdk / project["readme"]).read_text() if "readme" in project else ""
    head += ["Description-Content-Type: text/markdown"] if readme else []
    tags = [f"Tag: py3-none-{platform}" for platform in platforms]
    files = {f"ctxbench-{version}.data/scripts/ctxbench": pathlib.Path(binary).read_bytes()}
    for path in sorted((sdk / "ctxbench").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            files[path.relative_to(sdk).as_posix()] = path.read_bytes()
    files |= {f"{info}/licenses/{path.name}": path.read_bytes() for path in licences}
    files[f"{info}/METADATA"] = "\n".join(head + ["", readme]).encode()
    files[f"{info}/WHEEL"] = "\n".join(["Wheel-Version: 1.0", "Generator: scripts/packages.py", "Root-Is-Purelib: false", *tags, ""]).encode()
    record = f"{info}/RECORD"
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    files[record] = "".join([*rows, f"{record},,\n"]).encode()
    made = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(f"{out}/ctxbench-{version}-py3-none-{'.'.join(platforms)}.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, made)
            entry.external_attr = (0o100755 if name.endswith("/scripts/ctxbench") else 0o100644) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)


def npm(version, directory, summary):
    """The command, and the SDK's files and entry points."""
    sdk = pathlib.Path("sdk/typescript")
    package = json.loads((sdk / "package.json").read_text()) if sdk.exists() else {}
    kept = {name: package[name] for name in ("type", "main", "types", "exports", "engines", "dependencies") if name in package}
    for name in package.get("files", []):
        copy = shutil.copytree if (sdk / name).is_dir() else shutil.copy
        copy(sdk / name, pathlib.Path(directory, name))
    binaries = {f"ctxbench-linux-{machine}": version for machine in ("x64", "arm64")}
    head = {"name": "ctxbench", "version": version, "description": summary, "license": "MIT OR Apache-2.0"}
    whole = head | kept | {"bin": {"ctxbench": "bin/ctxbench.cjs"}, "optionalDependencies": binaries}
    pathlib.Path(directory, "package.json").write_text(json.dumps(whole, indent=2) + "\n")


def registry(directory, port_file):
    """Answers with the packages in a directory, and with 404 for every other name."""
    answers = {}
    for path in pathlib.Path(directory).glob("*.tgz"):
        with tarfile.open(path) as archive:
            package = json.load(archive.extractfile("package/package.json"))
        answers[f"/{package['name']}"] = package, path
        answers[f"/{path.name}"] = None, path

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            package, path = answers.get(self.path, (None, None))
            if path is None:
                self.send_error(404)
                return
            body = path.read_bytes()
            if package:
                host = self.headers["Host"]
                dist = {"tarball": f"http://{host}/{path.name}", "shasum": hashlib.sha1(body).hexdigest()}
                version = package["version"]
                versions = {version: package | {"dist": dist}}
                body = json.dumps({"name": package["name"], "dist-tags": {"latest": version}, "versions": versions}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pathlib.Path(port_file).write_text(str(server.server_port))
    server.serve_forever()


match sys.argv[1:]:
    case ["licences", zig, *targets]:
        licences(zig, targets)
    case ["check", *paths]:
        check([pathlib.Path(path) for path in paths])
    case ["wheel", version, machine, binary, stage, out, summary]:
        wheel(version, machine, binary, stage, out, summary)
    case ["npm", version, directory, summary]:
        npm(version, directory, summary)
    case ["registry", directory, port_file]:
        registry(directory, port_file)
    case _:
        sys.exit(__doc__)
