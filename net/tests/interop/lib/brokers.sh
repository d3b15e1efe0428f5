# Starting and stopping the brokers that the scripts in net/tests drive. Sourced, not run.
#
# Knows where the tools are kept (target/interop, never the source tree) and how a ringlog and an
# Apache Kafka are started, waited for and stopped. Knows nothing of what is done with them.
# Every process started here is stopped by the pid it was started with.

REPO_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../.." && pwd)"
INTEROP_DIR="$REPO_ROOT/net/tests/interop"
CACHE="${INTEROP_CACHE:-$REPO_ROOT/target/interop}"
KAFKA_LIBS="$CACHE/kafka/libs"
RINGLOG_BIN="${RINGLOG_BIN:-$REPO_ROOT/target/release/ringlog}"
mkdir -p "$CACHE"

die() { echo "$*" >&2; exit 1; }

# A TCP port that nobody listens on at this moment.
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Runs "$2..." unless it already ran for the same content of the file $1 (a lock file).
once_per_lockfile() {
  local lockfile=$1 name stamp
  shift
  name=$(echo "$lockfile" | sed "s|$REPO_ROOT/||" | tr / _)
  stamp="$CACHE/.installed-$name"
  if ! cmp -s "$lockfile" "$stamp"; then
    "$@" && cp "$lockfile" "$stamp"
  fi
}

# Installs Debian packages whose command is missing: `apt_install kcat` or `apt_install mvn=maven`.
apt_install() {
  local wanted=() entry
  for entry in "$@"; do
    command -v "${entry%%=*}" >/dev/null || wanted+=("${entry##*=}")
  done
  [ ${#wanted[@]} -eq 0 ] && return 0
  local sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  DEBIAN_FRONTEND=noninteractive $sudo apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
}

# Apache Kafka, its tools and its Java client as jars in $KAFKA_LIBS.
install_kafka() {
  apt_install mvn=maven java=default-jdk-headless &&
    once_per_lockfile "$INTEROP_DIR/kafka/pom.xml" _copy_kafka_jars
}
_copy_kafka_jars() {
  mkdir -p "$KAFKA_LIBS"
  rm -f "$KAFKA_LIBS"/*.jar
  mvn -q -B -f "$INTEROP_DIR/kafka/pom.xml" dependency:copy-dependencies -DoutputDirectory="$KAFKA_LIBS" >"$CACHE/mvn.log" 2>&1 ||
    { cat "$CACHE/mvn.log" >&2; return 1; }
}

# The Python clients in a virtual environment.
install_python() {
  PYTHON="$CACHE/venv/bin/python"
  once_per_lockfile "$INTEROP_DIR/lib/requirements.txt" _make_venv
}
_make_venv() {
  # Debian ships Python without ensurepip unless python3-venv is there.
  python3 -c 'import ensurepip' 2>/dev/null || apt_install no-such-command=python3-venv || return 1
  rm -rf "$CACHE/venv"
  python3 -m venv "$CACHE/venv" &&
    "$CACHE/venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: -r "$INTEROP_DIR/lib/requirements.txt"
}

# Waits until $1 (host:port) answers an ApiVersions request (version 0), not just accepts; $2 is the
# pid of the broker, whose death ends the wait. A broker may accept before it can answer.
wait_for_broker() {
  python3 - "$1" "$2" <<'PY'
import os, socket, struct, sys, time
host, port = sys.argv[1].rsplit(":", 1)
request = struct.pack(">hhih4s", 18, 0, 7, 4, b"wait")
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    try:
        os.kill(int(sys.argv[2]), 0)
    except OSError:
        sys.exit("the broker ended before it answered")
    try:
        with socket.create_connection((host, int(port)), timeout=2) as s:
            s.settimeout(2)
            s.sendall(struct.pack(">i", len(request)) + request)
            reply = s.recv(10)
            if len(reply) >= 8 and struct.unpack(">i", reply[4:8])[0] == 7:
                sys.exit(0)
    except OSError:
        pass
    time.sleep(0.05)
sys.exit("the broker did not answer within 60 seconds")
PY
}

# broker_command DIR PORT [key=value...]: sets BROKER_COMMAND to what runs the broker that $BROKER names
# (ringlog unless said; or kafka) with its data in DIR/data, listening on PORT, with these settings.
broker_command() {
  local dir=$1 port=$2 setting
  shift 2
  mkdir -p "$dir"
  case "${BROKER:-ringlog}" in
    ringlog)
      [ -x "$RINGLOG_BIN" ] || die "no $RINGLOG_BIN: run \`cargo build --release\` first, or set RINGLOG_BIN"
      # Two shards, so that requests cross between them on the smallest machine.
      BROKER_COMMAND=("$RINGLOG_BIN" serve --data "$dir/data" --listen "127.0.0.1:$port" --shards 2)
      for setting in "$@"; do BROKER_COMMAND+=(--set "$setting"); done
      ;;
    kafka)
      _prepare_kafka "$dir" "$port" "$@" || return 1
      local heap="${KAFKA_HEAP_MB:-512}m"
      BROKER_COMMAND=(java "-Xms$heap" "-Xmx$heap" -Dlog4j2.level=WARN -cp "$KAFKA_LIBS/*" kafka.Kafka "$dir/server.properties")
      ;;
    *) die "BROKER is ringlog or kafka, not $BROKER" ;;
  esac
}

# Writes DIR/server.properties, and formats DIR/data the first time.
_prepare_kafka() {
  local dir=$1 port=$2 setting
  shift 2
  [ -f "$dir/controller-port" ] || free_port >"$dir/controller-port"
  {
    echo "process.roles=broker,controller"
    echo "node.id=1"
    echo "controller.listener.names=CONTROLLER"
    echo "controller.quorum.voters=1@127.0.0.1:$(cat "$dir/controller-port")"
    echo "listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$(cat "$dir/controller-port")"
    echo "log.dirs=$dir/data"
    echo "offsets.topic.replication.factor=1"
    echo "transaction.state.log.replication.factor=1"
    echo "transaction.state.log.min.isr=1"
    for setting in "$@"; do echo "$setting"; done
  } >"$dir/server.properties"
  [ -f "$dir/data/meta.properties" ] && return 0
  java -Xmx256m -cp "$KAFKA_LIBS/*" kafka.tools.StorageTool format -t ringlogInteropTests00w \
    -c "$dir/server.properties" >"$dir/format.log" 2>&1 || { cat "$dir/format.log" >&2; return 1; }
}

# start_broker DIR PORT [key=value...]: runs it, appends its output to $BROKER_LOG, waits until it answers; sets BROKER_PID.
start_broker() {
  broker_command "$@" || return 1
  "${BROKER_COMMAND[@]}" >>"$BROKER_LOG" 2>&1 &
  BROKER_PID=$!
  wait_for_broker "127.0.0.1:$2" "$BROKER_PID" || { tail -20 "$BROKER_LOG" >&2; return 1; }
}

# Stops the broker started last, gracefully, and waits for its end; killed if it takes longer than 30 s.
stop_broker() {
  [ -n "${BROKER_PID:-}" ] || return 0
  local pid=$BROKER_PID tries=0
  BROKER_PID=
  kill -TERM "$pid" 2>/dev/null || return 0
  while kill -0 "$pid" 2>/dev/null; do
    tries=$((tries + 1))
    if [ $tries -gt 300 ]; then
      kill -KILL "$pid" 2>/dev/null
      wait "$pid" 2>/dev/null || true
      echo "the broker did not stop within 30 seconds of SIGTERM" >&2
      return 1
    fi
    sleep 0.1
  done
  wait "$pid" 2>/dev/null || true
  return 0
}
