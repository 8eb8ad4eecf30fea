"""The code blocks of README, tutorials and docs/storage.md do what their pages say, on a real broker."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from debezium.source import SourceDatabase, make_connect_script
from docs_site.code_runner import DocsError, PageRunner, find_missing_line, running_page
from docs_site.pages import DOCS, ROOT, CodeBlock, list_code_blocks, list_section_blocks
from object_store.servers import HOST, find_postgres_program, free_port
from trimtab.cli.broker.embedded_broker import EmbeddedBroker

CI_PAGE = DOCS / "tutorial-consumer.md"
DATABASE_PAGE = DOCS / "tutorial-changes.md"
STORAGE_PAGE = DOCS / "storage.md"
DELTA_INSTEAD = {
    "lake.catalog.type: rest": "lake.format: delta",
    "lake.catalog.uri: http://localhost:8181": "lake.warehouse: s3://lake/warehouse",
}
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted(DOCS.glob("tutorial-*.md")) if page not in {CI_PAGE, DATABASE_PAGE}),
]


@pytest.fixture
def own_broker() -> Iterator[str]:
    """A broker without topics, so that pages may use the names that they show."""
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def shop_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceDatabase]:
    """A database `shop` with logical decoding."""
    try:
        find_postgres_program("initdb")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with SourceDatabase(tmp_path_factory.mktemp("database") / "postgres.log") as database:
        database.execute("CREATE ROLE shop SUPERUSER LOGIN", "CREATE DATABASE shop OWNER shop")
        yield database


def run_blocks(
    blocks: Sequence[CodeBlock], folder: Path, bootstrap: str, more: Mapping[str, str] | None = None
) -> None:
    web_port = free_port()
    replacements = {
        "localhost:9092": bootstrap,
        "localhost:8080": f"localhost:{web_port}",
        "port: 8080": f"port: {web_port}",
        " examples/": f" {ROOT}/examples/",
        **(more or {}),
    }
    with running_page(folder, replacements) as runner:
        runner.run(blocks)


@pytest.mark.broker
def test_the_consumer_tutorial_runs(bootstrap: str, tmp_path: Path) -> None:
    """Pasted block by block into an empty folder, the tutorial prints what it shows."""
    run_blocks(list_code_blocks(CI_PAGE), tmp_path, bootstrap)


@pytest.mark.docs
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs(page: Path, own_broker: str, tmp_path: Path) -> None:
    """Pasted block by block into an empty folder, the page's commands end well and print what it shows."""
    run_blocks(list_code_blocks(page), tmp_path, own_broker)


@pytest.mark.docs
def test_the_tutorial_of_changes_runs(own_broker: str, shop_database: SourceDatabase, tmp_path: Path) -> None:
    """With PostgreSQL, Kafka Connect and Debezium, which the page lets a reader install."""
    (tmp_path / "plugins").mkdir()
    connect = tmp_path / "kafka" / "bin" / "connect-standalone.sh"
    connect.parent.mkdir(parents=True)
    connect.write_text(make_connect_script())
    connect.chmod(0o755)
    port = shop_database.port
    more = {
        "PGHOST=localhost": f"PGHOST={HOST} PGPORT={port}",
        "database.port=5432": f"database.port={port}",
        "localhost:8083": f"localhost:{free_port()}",
    }
    run_blocks(list_code_blocks(DATABASE_PAGE), tmp_path, own_broker, more)


@pytest.mark.object_store
@pytest.mark.parametrize("instead", [{}, DELTA_INSTEAD], ids=["iceberg", "delta"])
def test_the_storage_page_can_be_tried(instead: dict[str, str], own_broker: str, tmp_path: Path) -> None:
    """A store and a catalog are started, and a topic is written to them, by the page's own commands."""
    store_port, catalog_port = free_port(), free_port()
    ports = f"STORE_PORT={store_port} CATALOG_PORT={catalog_port}"
    more = {
        **instead,
        "make try-object-store": f"make -C {ROOT} try-object-store {ports} STORE_FOLDER={tmp_path}/store",
        ".venv/bin/": f"{Path(sys.executable).parent}/",
        "localhost:9000": f"localhost:{store_port}",
        "localhost:8181": f"localhost:{catalog_port}",
    }
    run_blocks(list_section_blocks(STORAGE_PAGE, "Try it"), tmp_path, own_broker, more)


def make_block(text: str, language: str = "sh", instruction: str = "", title: str = "") -> CodeBlock:
    return CodeBlock("page.md", 7, language, title, text, instruction)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([make_block("exit 3")], "page.md:7 exits with 3"),
        ([make_block("false; true")], "page.md:7 exits with 1"),
        ([make_block("echo one"), make_block("two", "text")], "'two' is not in the output"),
        ([make_block("x = 1", "python")], "nothing says how to run this block"),
        ([make_block("echo no", instruction='background it until "yes"')], "did not print 'yes'"),
        (
            [
                make_block("echo yes; sleep 60 & wait; exit 5", instruction='background it until "yes"'),
                make_block("", instruction="stop it"),
            ],
            "",
        ),
    ],
)
def test_a_wrong_block_is_named(blocks: list[CodeBlock], message: str, tmp_path: Path) -> None:
    """A block that fails, or prints something else than the page shows, is named by page and line."""
    with running_page(tmp_path, {}) as runner:
        if message:
            with pytest.raises(DocsError, match=re.escape(message)):
                runner.run(blocks)
        else:
            runner.run(blocks)


def test_files_are_written_and_addresses_replaced(tmp_path: Path) -> None:
    """A block with a title is a file; the addresses of the docs become those of the test."""
    runner = PageRunner(tmp_path, {"localhost:9092": "localhost:1"})
    text = 'print("at localhost:9092: 17 records")'
    runner.run(
        [make_block(text, "python", title="a.py"), make_block("python a.py"), make_block("…: 3 rec…", "text")]
    )
    assert "localhost:1" in (tmp_path / "a.py").read_text()


def test_an_export_holds_for_later_blocks(tmp_path: Path) -> None:
    """As in a terminal, which a reader keeps open."""
    runner = PageRunner(tmp_path, {})
    blocks = [make_block("export PLACE=here"), make_block("echo $PLACE"), make_block("here", "text")]
    runner.run(blocks)


def test_output_is_compared_in_order() -> None:
    """Numbers stand for any number, "…" for anything; the lines of a page come in its order."""
    printed = "read 12 records\nin 0.3 s\nend"
    assert find_missing_line("read 1,000 records\n…\nend", printed) is None
    assert find_missing_line("end\nread 1 records", printed) == "read 1 records"
    assert find_missing_line("wrote 12 records", printed) == "wrote 12 records"
