#!/bin/sh
# Upgrade all Speciate processes without downtime: new replicas of the API start before the old ones stop. Options are
# passed to compose: `deploy/upgrade.sh -f docker-compose.yml -f deploy/compose.tier-a.yml`.
# A plain `docker compose up -d --build` stops all replicas and the proxy for some seconds.
set -eu
options=$*
compose() { docker compose $options "$@"; }

old=$(compose ps -q api)
[ -n "$old" ] || { echo "No API is running: start everything with 'docker compose up -d --build'." >&2; exit 1; }

compose build migrate
compose run --rm --no-deps migrate

give_up() {
    for replica in $(compose ps -aq api); do
        echo "$old" | grep -q "$replica" || docker rm -f "$replica" > /dev/null
    done
    echo "The new API does not become healthy and is removed; the old one goes on. Its image is built, and the schema is new." >&2
    exit 1
}
compose up -d --no-deps --no-recreate --wait --scale api=$((2 * $(echo "$old" | wc -l))) api || give_up
sleep 6  # the proxy resolves the replicas' addresses every five seconds
for replica in $old; do
    docker stop "$replica" > /dev/null
    docker rm "$replica" > /dev/null
    sleep 6
done
# Workers finish their work or return it. Generate workers wait for policies that restart.
compose up -d --no-deps --wait policies generate evaluate control
compose up -d --no-deps register
