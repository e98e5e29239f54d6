CREATE TABLE wtb_background_jobs (
	name TEXT NOT NULL, 
	registered_at_us BIGINT NOT NULL, 
	owner TEXT, 
	token BIGINT NOT NULL, 
	expires_at_us BIGINT, 
	requested_by TEXT, 
	last_started_at_us BIGINT, 
	last_ended_at_us BIGINT, 
	last_error TEXT, 
	figures TEXT NOT NULL, 
	notes TEXT NOT NULL, 
	PRIMARY KEY (name)
)
 WITHOUT ROWID

;
CREATE TABLE wtb_baseline_results (
	batch_id TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	combination TEXT NOT NULL, 
	case_id TEXT NOT NULL, 
	repeat INTEGER NOT NULL, 
	fingerprint TEXT NOT NULL, 
	status TEXT NOT NULL, 
	execution_id TEXT, 
	result TEXT NOT NULL, 
	seal BLOB, 
	PRIMARY KEY (batch_id, number)
)
 WITHOUT ROWID

;
CREATE TABLE wtb_baselines (
	name TEXT NOT NULL, 
	batch_id TEXT NOT NULL, 
	workflow_name TEXT NOT NULL, 
	combination TEXT NOT NULL, 
	record TEXT NOT NULL, 
	results BIGINT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	seal BLOB, 
	PRIMARY KEY (name)
);
CREATE TABLE wtb_batch_jobs (
	batch_id TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	combination TEXT NOT NULL, 
	case_id TEXT NOT NULL, 
	repeat INTEGER NOT NULL, 
	fingerprint TEXT NOT NULL, 
	status TEXT NOT NULL, 
	execution_id TEXT, 
	result TEXT NOT NULL, seal BLOB, 
	PRIMARY KEY (batch_id, number)
)
 WITHOUT ROWID

;
CREATE TABLE wtb_batches (
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	workflow_name TEXT NOT NULL, 
	status TEXT NOT NULL, 
	"plan" TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	updated_at_us BIGINT NOT NULL, spent_us BIGINT DEFAULT '0' NOT NULL, seal BLOB, driver TEXT, driver_seen_at_us BIGINT, 
	PRIMARY KEY (id)
);
CREATE TABLE wtb_blobs (
	address BLOB NOT NULL, 
	data BLOB NOT NULL, 
	touched_at_us BIGINT NOT NULL, 
	PRIMARY KEY (address)
);
CREATE TABLE wtb_branches (
	id TEXT NOT NULL, 
	execution_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	head_id TEXT, 
	forked_from_id TEXT, 
	created_at_us BIGINT NOT NULL, seal BLOB, head_seal BLOB, 
	PRIMARY KEY (id), 
	CONSTRAINT wtb_branches_name UNIQUE (execution_id, name)
);
CREATE TABLE wtb_checkpoints (
	id TEXT NOT NULL, 
	execution_id TEXT NOT NULL, 
	branch_id TEXT NOT NULL, 
	parent_id TEXT, 
	step BIGINT NOT NULL, 
	node TEXT, 
	visit BIGINT, 
	node_run_id TEXT, 
	cause TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	name TEXT, 
	description TEXT NOT NULL, 
	next_nodes TEXT NOT NULL, 
	joins TEXT NOT NULL, 
	file_commit TEXT, 
	agent TEXT, 
	restore_point INTEGER NOT NULL, 
	created_by TEXT, 
	created_at_us BIGINT NOT NULL, 
	state_hash BLOB NOT NULL, 
	returned_hash BLOB NOT NULL, 
	parent_hash BLOB NOT NULL, 
	hash BLOB NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	format INTEGER NOT NULL, 
	deleted INTEGER NOT NULL, 
	payload BLOB NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE wtb_commands (
	id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	subject TEXT, 
	arguments TEXT NOT NULL, 
	status TEXT NOT NULL, 
	created_by TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	started_at_us BIGINT, 
	ended_at_us BIGINT, 
	owner TEXT, 
	expires_at_us BIGINT, 
	attempts BIGINT NOT NULL, 
	losses BIGINT NOT NULL, 
	result TEXT, 
	error TEXT, 
	PRIMARY KEY (id)
)
 WITHOUT ROWID

;
CREATE TABLE wtb_deliveries (
	webhook_id TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	type TEXT NOT NULL, 
	status TEXT NOT NULL, 
	attempts BIGINT NOT NULL, 
	next_at_us BIGINT, 
	error TEXT, 
	created_at_us BIGINT NOT NULL, 
	ended_at_us BIGINT, 
	PRIMARY KEY (webhook_id, position)
)
 WITHOUT ROWID

;
CREATE TABLE wtb_evaluations (
	execution_id TEXT NOT NULL, 
	id TEXT NOT NULL, 
	checkpoint_id TEXT NOT NULL, 
	metric TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	score TEXT, 
	error TEXT, 
	created_by TEXT, 
	created_at_us BIGINT NOT NULL, 
	seal BLOB, 
	PRIMARY KEY (execution_id, id)
)
 WITHOUT ROWID

;
CREATE TABLE wtb_events (
	position INTEGER NOT NULL PRIMARY KEY, 
	stream TEXT NOT NULL, 
	sequence BIGINT NOT NULL, 
	type TEXT NOT NULL, 
	severity TEXT NOT NULL, 
	at_us BIGINT NOT NULL, 
	data TEXT NOT NULL, 
	hash BLOB NOT NULL, xid BIGINT DEFAULT '0' NOT NULL, 
	CONSTRAINT wtb_events_sequence UNIQUE (stream, sequence)
);
CREATE TABLE wtb_executions (
	id TEXT NOT NULL, 
	workflow_id TEXT NOT NULL, 
	workflow_name TEXT NOT NULL, 
	workflow_source TEXT, 
	status TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	branch_id TEXT NOT NULL, 
	lease_owner TEXT, 
	lease_token BIGINT NOT NULL, 
	lease_expires_at_us BIGINT, 
	failure TEXT, 
	metadata TEXT NOT NULL, 
	created_by TEXT, 
	created_at_us BIGINT NOT NULL, 
	updated_at_us BIGINT NOT NULL, pause TEXT, options TEXT DEFAULT '{}' NOT NULL, request TEXT, degraded TEXT, seal BLOB, batch_id TEXT, 
	PRIMARY KEY (id)
);
CREATE TABLE wtb_file_commits (
	id TEXT NOT NULL, 
	base_id TEXT, 
	format INTEGER NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	pending BIGINT NOT NULL, 
	payload BLOB NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE wtb_keyframes (
	checkpoint_id TEXT NOT NULL, 
	payload BLOB NOT NULL, 
	PRIMARY KEY (checkpoint_id)
);
CREATE TABLE wtb_limit_slots (
	id TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	name TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	since_us BIGINT NOT NULL, 
	expires_at_us BIGINT NOT NULL, 
	waiting BIGINT NOT NULL, 
	PRIMARY KEY (id)
)
 WITHOUT ROWID

;
CREATE TABLE wtb_limits (
	scope TEXT NOT NULL, 
	name TEXT NOT NULL, 
	width BIGINT NOT NULL, 
	successes BIGINT NOT NULL, 
	failures BIGINT NOT NULL, 
	breaker TEXT NOT NULL, 
	until_us BIGINT, 
	narrowed_at_us BIGINT, 
	told_width BIGINT NOT NULL, 
	PRIMARY KEY (scope, name)
)
 WITHOUT ROWID

;
CREATE TABLE wtb_node_cache (
	"key" BLOB NOT NULL, 
	status TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	attempt TEXT NOT NULL, 
	expires_at_us BIGINT NOT NULL, 
	value BLOB, 
	PRIMARY KEY ("key")
)
 WITHOUT ROWID

;
CREATE TABLE wtb_node_runs (
	execution_id TEXT NOT NULL, 
	id TEXT NOT NULL, 
	branch_id TEXT NOT NULL, 
	node TEXT NOT NULL, 
	visit BIGINT NOT NULL, 
	attempt BIGINT NOT NULL, 
	status TEXT NOT NULL, 
	input_id TEXT, 
	first_id TEXT, 
	last_id TEXT, 
	checkpoint_count BIGINT NOT NULL, 
	tool_count BIGINT NOT NULL, 
	failure TEXT, 
	started_at_us BIGINT NOT NULL, 
	ended_at_us BIGINT, pending BLOB, figures TEXT, seal BLOB, 
	PRIMARY KEY (execution_id, id)
)
 WITHOUT ROWID

;
CREATE TABLE wtb_object_contents (
	digest BLOB NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY (digest)
);
CREATE TABLE wtb_objects (
	digest BLOB NOT NULL, 
	size BIGINT NOT NULL, 
	place TEXT, 
	touched_at_us BIGINT NOT NULL, 
	PRIMARY KEY (digest)
);
CREATE TABLE wtb_observations (
	trace_id TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	reader TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	name TEXT NOT NULL, 
	digest TEXT NOT NULL, seal BLOB, 
	PRIMARY KEY (trace_id, number)
)
 WITHOUT ROWID

;
CREATE TABLE wtb_pending_writes (
	execution_id TEXT NOT NULL, 
	checkpoint_id TEXT NOT NULL, 
	task_id TEXT NOT NULL, 
	idx INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	channel TEXT NOT NULL, 
	data BLOB NOT NULL, 
	address BLOB NOT NULL, 
	created_at_us BIGINT NOT NULL, seal BLOB, 
	PRIMARY KEY (execution_id, checkpoint_id, task_id, idx)
);
CREATE TABLE wtb_requests (
	caller TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	command_id TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	PRIMARY KEY (caller, "key")
)
 WITHOUT ROWID

;
CREATE TABLE wtb_rollbacks (
	execution_id TEXT NOT NULL, 
	id TEXT NOT NULL, 
	branch_id TEXT NOT NULL, 
	direction TEXT NOT NULL, 
	head_id TEXT NOT NULL, 
	target_id TEXT NOT NULL, 
	safety_id TEXT NOT NULL, 
	calls TEXT NOT NULL, 
	status TEXT NOT NULL, 
	error TEXT, 
	created_by TEXT, 
	created_at_us BIGINT NOT NULL, 
	ended_at_us BIGINT, number BIGINT, seal BLOB, 
	PRIMARY KEY (execution_id, id)
);
CREATE TABLE wtb_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT wtb_schema_pkc PRIMARY KEY (version_num)
);
CREATE TABLE wtb_sign_ins (
	digest BLOB NOT NULL, 
	kind TEXT NOT NULL, 
	name TEXT NOT NULL, 
	role TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	expires_at_us BIGINT NOT NULL, 
	PRIMARY KEY (digest)
)
 WITHOUT ROWID

;
CREATE TABLE wtb_tokens (
	name TEXT NOT NULL, 
	role TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	created_by TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	expires_at_us BIGINT, 
	revoked_at_us BIGINT, 
	PRIMARY KEY (name), 
	UNIQUE (digest)
)
 WITHOUT ROWID

;
CREATE TABLE wtb_tool_calls (
	execution_id TEXT NOT NULL, 
	node_run_id TEXT NOT NULL, 
	identity TEXT NOT NULL, 
	sequence BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	tool TEXT NOT NULL, 
	effects TEXT NOT NULL, 
	arguments BLOB NOT NULL, 
	status TEXT NOT NULL, 
	result BLOB NOT NULL, 
	error TEXT, 
	started_at_us BIGINT NOT NULL, 
	ended_at_us BIGINT, figures TEXT, started_step BIGINT, started_number BIGINT, ended_step BIGINT, seal BLOB, 
	PRIMARY KEY (execution_id, node_run_id, identity)
);
CREATE TABLE wtb_webhooks (
	id TEXT NOT NULL, 
	url TEXT NOT NULL, 
	secret TEXT NOT NULL, 
	types TEXT NOT NULL, 
	cursor TEXT, 
	created_by TEXT, 
	created_at_us BIGINT NOT NULL, 
	PRIMARY KEY (id)
)
 WITHOUT ROWID

;
CREATE TABLE wtb_workflows (
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	version TEXT NOT NULL, 
	definition TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE INDEX wtb_batches_name ON wtb_batches (name, created_at_us);
CREATE INDEX wtb_branches_forked_from ON wtb_branches (forked_from_id);
CREATE UNIQUE INDEX wtb_checkpoints_name ON wtb_checkpoints (execution_id, name) WHERE name IS NOT NULL AND deleted = 0;
CREATE INDEX wtb_checkpoints_parent ON wtb_checkpoints (parent_id);
CREATE INDEX wtb_checkpoints_step ON wtb_checkpoints (execution_id, step);
CREATE INDEX wtb_commands_created ON wtb_commands (created_at_us, id);
CREATE INDEX wtb_commands_status ON wtb_commands (status, created_at_us);
CREATE INDEX wtb_deliveries_due ON wtb_deliveries (webhook_id, status, next_at_us);
CREATE INDEX wtb_events_feed ON wtb_events (xid, position) WHERE xid > 0;
CREATE INDEX wtb_executions_alone ON wtb_executions (created_at_us) WHERE batch_id IS NULL;
CREATE INDEX wtb_executions_batch ON wtb_executions (batch_id, created_at_us) WHERE batch_id IS NOT NULL;
CREATE INDEX wtb_executions_created ON wtb_executions (created_at_us);
CREATE INDEX wtb_executions_creator ON wtb_executions (created_by, created_at_us);
CREATE INDEX wtb_executions_status ON wtb_executions (status, created_at_us);
CREATE INDEX wtb_executions_workflow ON wtb_executions (workflow_name, created_at_us);
CREATE INDEX wtb_limit_slots_limit ON wtb_limit_slots (scope, name);
CREATE INDEX wtb_node_runs_unended ON wtb_node_runs (execution_id) WHERE last_id IS NULL;
CREATE INDEX wtb_workflows_name ON wtb_workflows (name);
CREATE VIEW wtb_node_boundaries AS SELECT execution_id, id AS node_run_id, branch_id, node, visit, status, first_id, last_id, checkpoint_count, tool_count, started_at_us, ended_at_us, failure FROM wtb_node_runs