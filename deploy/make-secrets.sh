#!/bin/sh
# Create the secrets that docker-compose.yml mounts, one file each. Existing files stay.
# Only the owner may open the folder. The files in it are readable, because every container reads them as its own user.
set -eu
folder=${1:-secrets}
mkdir -p "$folder"
chmod 700 "$folder"

put() {
    [ -s "$folder/$1" ] || printf '%s' "$2" > "$folder/$1"
    chmod 644 "$folder/$1"
}

random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

for name in database_password redis_password token metrics_token secret_key serve_token grafana_password; do
    put "$name" "$(random)"
done
put database_url "postgresql://speciate:$(cat "$folder/database_password")@postgres/speciate"
put redis_url "redis://:$(cat "$folder/redis_password")@redis:6379/0"
