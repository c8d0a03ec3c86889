#!/bin/sh
# Upgrade all Speciate processes without downtime: new replicas of the API start before the old ones stop. Options are
# passed to compose: `deploy/upgrade.sh -f docker-compose.yml -f deploy/compose.tier-a.yml`.
# A plain `docker compose up -d --build` stops all replicas and the proxy for some seconds.
set -eu
# Without the profile, compose does not know the learn worker. Every command below names its services.
set -- docker compose "$@" --profile learn

old=$("$@" ps -q api)
[ -n "$old" ] || { echo "No API is running: start everything with 'docker compose up -d --build'." >&2; exit 1; }
learn=$("$@" ps -q learn)

"$@" build migrate ${learn:+learn}
"$@" run --rm --no-deps migrate

give_up() {
    for replica in $("$@" ps -aq api); do
        echo "$old" | grep -q "$replica" || docker rm -f "$replica" > /dev/null
    done
    echo "The new API does not become healthy and is removed; the old one goes on. Its image is built, and the schema is new." >&2
    exit 1
}
"$@" up -d --no-deps --no-recreate --wait --scale api=$((2 * $(echo "$old" | wc -l))) api || give_up "$@"
sleep 6  # the proxy resolves the replicas' addresses every five seconds
for replica in $old; do
    docker stop "$replica" > /dev/null
    docker rm "$replica" > /dev/null
    sleep 6
done
# As many as there are: without --scale, compose returns to the numbers of its file.
scales=
for service in policies generate evaluate control learn; do
    number=$(($("$@" ps -q "$service" | wc -l)))
    [ "$number" -eq 0 ] || scales="$scales --scale $service=$number"
done
# Workers finish their work or return it. Generate workers wait for policies that restart.
"$@" up -d --no-deps --wait $scales policies generate evaluate control ${learn:+learn}
"$@" up -d --no-deps register
