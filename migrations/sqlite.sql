CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE runs (
	run_id VARCHAR(64) NOT NULL, 
	recipe_id VARCHAR NOT NULL, 
	dialect VARCHAR NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	created_at VARCHAR(24) NOT NULL, 
	updated_at VARCHAR(24) NOT NULL, 
	completed_at VARCHAR(24), 
	description VARCHAR NOT NULL, 
	priority INTEGER NOT NULL, 
	session_id VARCHAR NOT NULL, 
	parent_run_id VARCHAR, 
	error_code VARCHAR, 
	owner VARCHAR(8) NOT NULL, 
	working_dir VARCHAR NOT NULL, 
	exclusive_workspace BOOLEAN NOT NULL, 
	idempotency_key VARCHAR, 
	request_sha256 VARCHAR, started_at VARCHAR(24), reason VARCHAR, input_tokens BIGINT, output_tokens BIGINT, cost_usd FLOAT, search VARCHAR, counted BOOLEAN DEFAULT 0 NOT NULL, cost_estimated_usd FLOAT, concurrency_key VARCHAR, concurrency_limit INTEGER, concurrency_policy VARCHAR(16), pinned BOOLEAN DEFAULT 0 NOT NULL, 
	PRIMARY KEY (run_id), 
	CONSTRAINT ck_runs_status CHECK (status IN ('pending', 'running', 'waiting', 'paused', 'done', 'failed', 'cancelled')), 
	CONSTRAINT ck_runs_completed CHECK ((status IN ('done', 'failed', 'cancelled')) = (completed_at IS NOT NULL)), 
	CONSTRAINT ck_runs_owner CHECK (owner IN ('service', 'process', 'foreign')), 
	CONSTRAINT ck_runs_priority CHECK (priority BETWEEN -100 AND 100), 
	UNIQUE (idempotency_key)
);

CREATE INDEX ix_runs_newest ON runs (created_at, run_id);

CREATE INDEX ix_runs_parent ON runs (parent_run_id);

CREATE INDEX ix_runs_unfinished ON runs (created_at, run_id) WHERE status NOT IN ('done', 'failed', 'cancelled');

CREATE TABLE run_labels (
	run_id VARCHAR(64) NOT NULL, 
	name VARCHAR NOT NULL, 
	value VARCHAR NOT NULL, created_at VARCHAR(24), 
	PRIMARY KEY (run_id, name), 
	FOREIGN KEY(run_id) REFERENCES runs (run_id) ON DELETE CASCADE
);

CREATE TABLE receipts (
	receipt_id VARCHAR(64) NOT NULL, 
	session_id VARCHAR NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	offset_bytes INTEGER NOT NULL, 
	PRIMARY KEY (receipt_id)
);

CREATE TABLE issues (
	issue_id VARCHAR(200) NOT NULL, 
	run_id VARCHAR(64), 
	title VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	created_at VARCHAR, session_id VARCHAR, kind VARCHAR, "key" VARCHAR, updated_at VARCHAR(24), revision INTEGER DEFAULT 0 NOT NULL, marked BOOLEAN DEFAULT 1 NOT NULL, severity VARCHAR, recipe_id VARCHAR, 
	PRIMARY KEY (issue_id)
);

CREATE INDEX ix_runs_status ON runs (status, created_at, run_id);

CREATE INDEX ix_runs_recipe_status ON runs (recipe_id, status, created_at, run_id);

CREATE INDEX ix_runs_recipe ON runs (recipe_id, created_at, run_id);

CREATE INDEX ix_run_labels_value ON run_labels (name, value, created_at, run_id);

CREATE INDEX ix_run_labels_undated ON run_labels (run_id) WHERE created_at IS NULL;

CREATE INDEX ix_issues_newest ON issues (created_at, issue_id);

CREATE INDEX ix_issues_status ON issues (status, created_at, issue_id);

CREATE INDEX ix_issues_run ON issues (run_id, created_at, issue_id);

CREATE INDEX ix_issues_session ON issues (session_id, created_at, issue_id);

CREATE INDEX ix_issues_kind ON issues (kind, created_at, issue_id);

CREATE INDEX ix_runs_session ON runs (session_id, created_at, run_id);

CREATE INDEX ix_receipts_session ON receipts (session_id, offset_bytes);

CREATE INDEX ix_receipts_run ON receipts (run_id, session_id, offset_bytes);

CREATE INDEX ix_issues_severity ON issues (severity, created_at, issue_id);

CREATE INDEX ix_issues_recipe ON issues (recipe_id, created_at, issue_id);

CREATE INDEX ix_runs_ended ON runs (status, completed_at);

CREATE INDEX ix_runs_uncounted ON runs (created_at, run_id) WHERE NOT counted;

CREATE TABLE run_usage (
	run_id VARCHAR(64) NOT NULL, 
	quarter VARCHAR(24) NOT NULL, 
	agent_id VARCHAR NOT NULL, 
	model VARCHAR NOT NULL, 
	calls INTEGER NOT NULL, 
	input_tokens BIGINT NOT NULL, 
	output_tokens BIGINT NOT NULL, 
	cost_usd FLOAT, 
	calls_without_price INTEGER NOT NULL, cost_estimated_usd FLOAT, calls_silent INTEGER DEFAULT 0 NOT NULL, tokens_reserved BIGINT DEFAULT 0 NOT NULL, cost_reserved_usd FLOAT DEFAULT 0 NOT NULL, 
	PRIMARY KEY (run_id, quarter, agent_id, model)
);

CREATE INDEX ix_run_usage_quarter ON run_usage (quarter);

CREATE TABLE run_orders (
	run_id VARCHAR(64) NOT NULL, 
	target VARCHAR NOT NULL, 
	file VARCHAR(16) NOT NULL, 
	line INTEGER NOT NULL, 
	at VARCHAR(24) NOT NULL, 
	action VARCHAR NOT NULL, 
	author VARCHAR NOT NULL, 
	details VARCHAR NOT NULL, 
	author_name VARCHAR, 
	PRIMARY KEY (run_id, file, line)
);

CREATE INDEX ix_run_orders_newest ON run_orders (at, run_id, file, line);

CREATE INDEX ix_run_orders_author ON run_orders (author_name, at, run_id, file, line);

