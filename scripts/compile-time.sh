#!/usr/bin/env bash
# compile-time.sh [--json]: how long does an application compile, and again after one handler has changed? Beside the same
# application with axum.
#
# Both have the same handlers: in each group of four a list (State, Query), one item (State, Path), a creation (State, Json) and a
# change (State, Path, Query, Json), which answer with JSON. It is measured in the dev and in the release profile: all crates from
# nothing, COLD times, then, ROUNDS times, after a number in one handler has changed; the two in turn. Crates are downloaded before.
#
# Highwater is a dependency by git, of a copy of this working tree: cargo compiles it as it compiles a published crate. A
# dependency by path would be compiled incrementally, as if the user were to change it, which takes a third longer.
#
# It prints a table, or with --json one object with all measurements: seconds on the clock, and of CPU time. Other work on the
# machine lengthens the former, and hardly the latter.
#
# Settings: ROUTES (100), COLD (3), ROUNDS (5), PROFILES ("dev release"), CARGO_TARGET_DIR (target; the applications are built
# below its folder compile-time, which is removed first).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

routes=${ROUTES:-100}
colds=${COLD:-3}
rounds=${ROUNDS:-5}
profiles=${PROFILES:-dev release}
place=${CARGO_TARGET_DIR:-$root/target}/compile-time
results=()
# By framework: what was measured from nothing and after changes in this profile, and the changes so far in all profiles.
# A measurement is milliseconds on the clock, a colon, milliseconds of CPU time.
declare -A cold changed changes

main() {
  local is_json=
  case "${1:-}" in
    "") ;;
    --json) is_json=true ;;
    *) fail "usage: compile-time.sh [--json]" ;;
  esac
  [[ $routes =~ ^[1-9][0-9]{0,3}$ ]] || fail "ROUTES is $routes; write a number from 1 to 9999"
  [[ $colds =~ ^[1-9][0-9]?$ ]] || fail "COLD is $colds; write a number from 1 to 99"
  [[ $rounds =~ ^[1-9][0-9]?$ ]] || fail "ROUNDS is $rounds; write a number from 1 to 99"
  local profile
  for profile in $profiles; do
    [[ $profile = dev || $profile = release ]] || fail "PROFILES has $profile; write dev, release or both"
  done
  rm -rf "$place"
  copy_tree
  local framework round
  for framework in highwater axum; do
    generate "$framework"
    fetch "$framework"
  done
  for profile in $profiles; do
    cold=() changed=()
    for ((round = 1; round <= colds; round++)); do
      for framework in highwater axum; do
        echo "compile-time: $framework, $profile, $routes routes, from nothing, $round of $colds" >&2
        rm -rf "${place:?}/$framework/target"
        cold[$framework]+="$(build "$framework" "$profile") "
      done
    done
    for ((round = 1; round <= rounds; round++)); do
      for framework in highwater axum; do
        echo "compile-time: $framework, $profile, $routes routes, change $round of $rounds" >&2
        change "$framework"
        changed[$framework]+="$(build "$framework" "$profile") "
      done
    done
    for framework in highwater axum; do
      results+=("$framework $profile $(crates "$framework") $(size "$framework" "$profile") $(commas "${cold[$framework]}") $(commas "${changed[$framework]}")")
    done
  done
  if [ -n "$is_json" ]; then json; else table; fi
}

fail() {
  echo "compile-time.sh: $1" >&2
  exit 2
}

# The files that git knows, as they are now, in a repository of their own.
copy_tree() {
  local copy=$place/source
  mkdir -p "$copy"
  git -C "$root" ls-files -z --cached --others --exclude-standard |
    (cd "$root" && xargs -0 sh -c 'for file; do [ ! -e "$file" ] || printf "%s\0" "$file"; done' sh) |
    tar -C "$root" --null --files-from - --create | tar -C "$copy" --extract
  git -C "$copy" init --quiet
  git -C "$copy" add --all
  git -C "$copy" -c user.name=compile-time -c user.email=compile-time@localhost commit --quiet --message "the working tree"
}

# An application in a folder of its own, with the versions of our Cargo.lock.
generate() {
  local framework=$1 folder=$place/$1
  mkdir -p "$folder/src"
  cp "$root/Cargo.lock" "$folder"
  {
    printf '[package]\nname = "compiled-%s"\nversion = "0.0.0"\nedition = "2024"\npublish = false\n\n[workspace]\n\n' "$framework"
    printf '[dependencies]\nserde = { version = "1", features = ["derive"] }\n'
    case $framework in
      highwater)
        printf 'highwater = { git = "file://%s", default-features = false, features = ["json"] }\n' "$place/source"
        ;;
      axum)
        printf 'axum = "0.8"\ntokio = { version = "1", features = ["macros", "net", "rt-multi-thread"] }\n'
        ;;
    esac
  } >"$folder/Cargo.toml"
  handlers "$framework" >"$folder/src/handlers.rs"
  "main_$framework" >"$folder/src/main.rs"
}

# What differs between the two is where the types come from.
handlers() {
  case $1 in
    highwater) echo 'use highwater::{Json, Path, Query, State};' ;;
    axum) printf 'use axum::Json;\nuse axum::extract::{Path, Query, State};\n' ;;
  esac
  cat <<'RUST'
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

pub type Db = Arc<Mutex<Vec<u64>>>;
RUST
  local n
  for ((n = 0; n < routes; n++)); do
    if ((n % 4 == 0)); then types "$n"; fi
    handler "$n"
  done
}

# The types of a group of four handlers.
types() {
  cat <<RUST

#[derive(Deserialize)]
pub struct Page$1 {
    limit: Option<usize>,
    after: Option<u64>,
}

#[derive(Deserialize)]
pub struct New$1 {
    title: String,
    tags: Vec<String>,
    price: Option<f64>,
}

#[derive(Serialize)]
pub struct Item$1 {
    id: u64,
    title: String,
    tags: Vec<String>,
    price: Option<f64>,
}
RUST
}

handler() {
  local n=$1 group=$(($1 - $1 % 4)) item
  item="Item$group { id, title: format!(\"item {}\", id + ${n}_000), tags: Vec::new(), price: None }"
  echo
  case $((n % 4)) in
    0) cat <<RUST
pub async fn handler_$n(State(db): State<Db>, Query(page): Query<Page$group>) -> Json<Vec<Item$group>> {
    let ids = db.lock().unwrap().clone();
    let ids = ids.into_iter().filter(|id| *id > page.after.unwrap_or(0)).take(page.limit.unwrap_or(20));
    Json(ids.map(|id| $item).collect())
}
RUST
      ;;
    1) cat <<RUST
pub async fn handler_$n(State(db): State<Db>, Path(id): Path<u64>) -> Json<Option<Item$group>> {
    Json(db.lock().unwrap().contains(&id).then(|| $item))
}
RUST
      ;;
    2) cat <<RUST
pub async fn handler_$n(State(db): State<Db>, Json(new): Json<New$group>) -> Json<Item$group> {
    let mut db = db.lock().unwrap();
    let id = db.len() as u64 + ${n}_000;
    db.push(id);
    Json(Item$group { id, title: new.title, tags: new.tags, price: new.price })
}
RUST
      ;;
    3) cat <<RUST
pub async fn handler_$n(
    State(db): State<Db>,
    Path(id): Path<u64>,
    Query(page): Query<Page$group>,
    Json(new): Json<New$group>,
) -> Json<Item$group> {
    db.lock().unwrap().push(id.max(page.after.unwrap_or(${n}_000)));
    Json(Item$group { id, title: new.title, tags: new.tags, price: new.price })
}
RUST
      ;;
  esac
}

main_highwater() {
  printf 'mod handlers;\n\nuse handlers::*;\n\nfn main() {\n    let router = highwater::Router::new()\n        .state(Db::default())'
  local n
  for ((n = 0; n < routes; n++)); do printf '\n        .%s("%s", handler_%s)' "$(method "$n")" "$(path "$n")" "$n"; done
  printf ';\n    highwater::Server::new(router).run().unwrap();\n}\n'
}

main_axum() {
  printf 'mod handlers;\n\nuse axum::routing::*;\nuse handlers::*;\n\n#[tokio::main]\nasync fn main() {\n    let router = axum::Router::new()'
  local n
  for ((n = 0; n < routes; n++)); do printf '\n        .route("%s", %s(handler_%s))' "$(path "$n")" "$(method "$n")" "$n"; done
  printf '\n        .with_state(Db::default());\n    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await.unwrap();\n'
  printf '    axum::serve(listener, router).await.unwrap();\n}\n'
}

method() {
  local methods=(get get post put)
  echo "${methods[$1 % 4]}"
}

path() {
  local group=$(($1 / 4))
  if (($1 % 2 == 0)); then echo "/items$group"; else echo "/items$group/{id}"; fi
}

# Downloads, so that a slow network is not measured.
fetch() {
  cargo fetch --quiet --manifest-path "$place/$1/Cargo.toml"
}

# Builds, and prints the measurement.
build() {
  local began ended cpu TIMEFORMAT='%U %S'
  began=$(date +%s%N)
  cpu=$({
    time CARGO_TARGET_DIR=$place/$1/target cargo build --quiet --offline --profile "$2" --manifest-path "$place/$1/Cargo.toml" >&3 2>&3
  } 3>&2 2>&1)
  ended=$(date +%s%N)
  echo "$(((ended - began) / 1000000)):$(awk '{ printf "%.0f", ($1 + $2) * 1000 }' <<<"$cpu")"
}

# A number that the last handler with one has never had, in no profile.
change() {
  local file=$place/$1/src/handlers.rs
  changes[$1]=$((${changes[$1]:-0} + 1))
  tac "$file" | awk -v number="$((1000 + changes[$1]))_000" '!done && /_000/ { sub(/[0-9]+_000/, number); done = 1 } { print }' | tac >"$file.new"
  ! cmp --silent "$file" "$file.new" || fail "no handler of $1 could be changed"
  mv "$file.new" "$file"
}

crates() {
  cargo metadata --quiet --offline --format-version 1 --manifest-path "$place/$1/Cargo.toml" --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" |
    grep --only-matching '"resolve":.*' | grep --only-matching '"dependencies":\[' | wc -l
}

size() {
  local folder=$2
  [ "$folder" != dev ] || folder=debug
  stat --format %s "$place/$1/target/$folder/compiled-$1"
}

commas() {
  local list=${1% }
  echo "${list// /,}"
}

json() {
  local line framework profile crates size cold changed separator=
  printf '{"routes":%s,"cold":%s,"rounds":%s,"rustc":"%s","cores":%s,"results":[' "$routes" "$colds" "$rounds" "$(rustc --version)" "$(nproc)"
  for line in "${results[@]}"; do
    read -r framework profile crates size cold changed <<<"$line"
    printf '%s{"framework":"%s","profile":"%s","crates":%s,"program_bytes":%s' "$separator" "$framework" "$profile" "$crates" "$size"
    printf ',"cold_ms":[%s],"cold_cpu_ms":[%s]' "$(column 1 "$cold")" "$(column 2 "$cold")"
    printf ',"changed_ms":[%s],"changed_cpu_ms":[%s]}' "$(column 1 "$changed")" "$(column 2 "$changed")"
    separator=,
  done
  printf ']}\n'
}

# Of measurements with commas between them, one side of the colon.
column() {
  tr , '\n' <<<"$2" | cut -d : -f "$1" | paste -s -d ,
}

table() {
  local line framework profile crates size cold changed
  printf '%s routes, %s, %s cores; medians (least … most)\n\n' "$routes" "$(rustc --version)" "$(nproc)"
  printf '%-10s %-8s %7s %10s %25s %25s %25s %25s\n' framework profile crates program cold "cold, CPU" changed "changed, CPU"
  for line in "${results[@]}"; do
    read -r framework profile crates size cold changed <<<"$line"
    printf '%-10s %-8s %7d %10s %25s %25s %25s %25s\n' "$framework" "$profile" "$crates" \
      "$(awk -v size="$size" 'BEGIN { printf "%.1f MB", size / 1e6 }')" "$(spread 1 1 "$cold")" "$(spread 1 2 "$cold")" \
      "$(spread 2 1 "$changed")" "$(spread 2 2 "$changed")"
  done
}

# The median of a column of measurements, as seconds with so many digits, and what it lies between.
spread() {
  column "$2" "$3" | tr , '\n' | sort -n | awk -v format="%.$1f s (%.$1f … %.$1f)" '
    { times[NR] = $1 / 1000 }
    END { printf format, (times[int((NR + 1) / 2)] + times[int(NR / 2) + 1]) / 2, times[1], times[NR] }'
}

main "$@"
