"""Outgoing requests of programs in sandboxes: git, pip, npm, wget, and Python libraries."""

import io
import json
import subprocess
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from blaxel.core import SyncSandboxInstance
from support import fresh
from world import World

SECRET = "sk-never-seen-inside-4711"
# The image has the same Python as these tests.
PACKAGES = [
    "requests", "urllib3", "certifi", "idna", "charset_normalizer", "httpx", "httpcore", "h11", "anyio", "sniffio",
    "typing_extensions.py", "aiohttp", "aiohappyeyeballs", "aiosignal", "frozenlist", "multidict", "propcache", "yarl", "attr",
    "attrs",
]  # fmt: skip


@pytest.fixture(scope="module")
def world():
    world = World()
    yield world
    world.close()


def network(**more):
    rule = {
        "destinations": ["api.example.test"],
        "headers": {"X-Key": "{{SECRET:key}}"},
        "secrets": {"key": SECRET},
    }
    return {"proxy": {"routing": [rule]}, "allowedDomains": ["*.example.test"], **more}


def run(box, command):
    done = box.process.exec({"command": command, "wait_for_completion": True})
    assert done.exit_code == 0, (done.stdout, done.stderr, done.logs)
    return done.stdout


def sandbox():
    return SyncSandboxInstance.create({"name": fresh("box"), "region": "local", "memory": 2048, "network": network()})


def packages() -> bytes:
    """Returns an archive of these tests' libraries, to be unpacked in a sandbox."""
    site, buffer = Path(sysconfig.get_paths()["purelib"]), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in PACKAGES:
            archive.add(site / name, name, filter=lambda about: None if "__pycache__" in about.name else about)
    return buffer.getvalue()


LIBRARIES = {
    "requests": "import requests; print(requests.get(url).text)",
    "httpx": "import httpx; print(httpx.get(url).text)",
    "urllib3": "import urllib3, os; from urllib.parse import unquote, urlsplit; p = os.environ['HTTPS_PROXY']; u = urlsplit(p)\n"
    "headers = urllib3.make_headers(proxy_basic_auth=f'{u.username}:{unquote(u.password)}')\n"
    "proxy = urllib3.ProxyManager(p, proxy_headers=headers, ca_certs=os.environ['SSL_CERT_FILE'])\n"
    "print(proxy.request('GET', url).data.decode())",
    "urllib": "import urllib.request as r; print(r.build_opener(r.ProxyHandler({})).open(url).read().decode())",
    "aiohttp": "import aiohttp, asyncio\nasync def main():\n  async with aiohttp.ClientSession(trust_env=True) as s:\n"
    "    async with s.get(url) as a: print(await a.text())\nasyncio.run(main())",
}


def test_libraries_of_python_find_the_proxy_and_trust_it(world):
    box = sandbox()
    try:
        box.fs.write_binary("/tmp/packages.tar.gz", packages())
        run(box, "mkdir -p /opt/packages && tar -xzf /tmp/packages.tar.gz -C /opt/packages")
        for name, program in LIBRARIES.items():
            box.fs.write("/tmp/ask.py", f"import sys\nurl = sys.argv[1]\n{program}\n")
            told = run(box, f"PYTHONPATH=/opt/packages python3 /tmp/ask.py {world.url('api')}")
            headers = {key.lower(): value for key, value in json.loads(told)["headers"].items()}
            assert headers.get("x-key") == SECRET, (name, told)
    finally:
        box.delete()


def test_git_clones(world, tmp_path):
    def git(*arguments):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "work")
    (tmp_path / "work" / "hello").write_text("hi\n")
    git("-C", "work", "add", ".")
    git("-C", "work", "-c", "user.name=t", "-c", "user.email=t@example.test", "commit", "-qm", "first")
    git("clone", "-q", "--bare", "work", "repository.git")
    git("-C", "repository.git", "update-server-info")
    root = tmp_path / "repository.git"
    files = {f"/repository.git/{file.relative_to(root)}": file.read_bytes() for file in root.rglob("*") if file.is_file()}
    world.files |= files
    box = sandbox()
    try:
        # More than once: whether two TLS records arrive together depends on timing.
        clone = f"timeout 30 git clone -q {world.url('git', '/repository.git')} /tmp/clone"
        run(box, f"for try in 1 2 3 4 5; do rm -rf /tmp/clone; {clone} || exit 1; done")
        assert run(box, "cat /tmp/clone/hello") == "hi\n"
    finally:
        box.delete()


def test_pip_and_npm_install(world):
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("greeting.py", "words = 'hello'\n")
        archive.writestr("greeting-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1\n")
        archive.writestr("greeting-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("greeting-1.dist-info/RECORD", "")
    package = io.BytesIO()
    with tarfile.open(fileobj=package, mode="w:gz") as archive:
        for name, text in {"package.json": '{"name": "greeting", "version": "1.0.0"}', "index.js": "module.exports = 'hello'"}.items():
            about = tarfile.TarInfo(f"package/{name}")
            about.size = len(text)
            archive.addfile(about, io.BytesIO(text.encode()))
    tarball = world.url("npm", "/greeting.tgz")
    about = {"name": "greeting", "dist-tags": {"latest": "1.0.0"}}
    about["versions"] = {"1.0.0": {"name": "greeting", "version": "1.0.0", "dist": {"tarball": tarball}}}
    world.files |= {
        "/simple/greeting/": b'<a href="/greeting-1-py3-none-any.whl">greeting-1-py3-none-any.whl</a>',
        "/greeting-1-py3-none-any.whl": wheel.getvalue(),
        "/greeting": json.dumps(about).encode(),
        "/greeting.tgz": package.getvalue(),
    }
    box = sandbox()
    try:
        run(box, f"pip install -q --disable-pip-version-check --index-url {world.url('pypi', '/simple')} greeting")
        assert run(box, "python3 -c 'import greeting; print(greeting.words)'") == "hello\n"
        registry = f"--registry {world.url('npm', '/')}"
        run(box, f"mkdir -p /tmp/app && cd /tmp/app && npm install --no-audit --no-fund {registry} greeting")
        assert run(box, "cd /tmp/app && node -p 'require(\"greeting\")'") == "hello\n"
    finally:
        box.delete()


def test_programs_that_know_no_proxy_are_under_the_same_rules(world):
    box = sandbox()
    try:
        assert SECRET in run(box, f"wget -qO- {world.url('api')}")
        refused = box.process.exec({
            "command": "wget -T 5 -t 1 -qO- https://elsewhere.example.com/", "wait_for_completion": True,
        })  # fmt: skip
        assert refused.exit_code != 0
        # Only TCP and questions for allowed names get out.
        for command in ["ping -c 1 -W 2 192.0.2.1", "nc -u -w 2 -z 192.0.2.1 443 && false", "getent hosts elsewhere.example.com"]:
            tried = box.process.exec({"command": command, "wait_for_completion": True})
            assert tried.exit_code != 0, command
    finally:
        box.delete()
