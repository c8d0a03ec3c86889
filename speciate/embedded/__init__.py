"""PostgreSQL and Valkey from wheels, without Docker or set-up; they end with the process that started them."""
