-- What the pages need beside the records: `highwater bench export --sql book/tables.sql`.

-- Servers by the names of their projects.
CREATE TABLE names (server TEXT PRIMARY KEY, name TEXT);
INSERT INTO names VALUES ('highwater', 'Highwater, io_uring'), ('highwater-epoll', 'Highwater, epoll'),
  ('floor-uring', 'bare loop, io_uring'), ('floor-epoll', 'bare loop, epoll'), ('may', 'may_minihttp'),
  ('xitca-epoll', 'xitca-web'), ('actix', 'actix-web'), ('go-fasthttp', 'fasthttp'), ('go-fiber', 'Fiber'),
  ('go-nethttp', 'Go net/http'), ('netty', 'Netty');

-- Comparisons with their intervals as text, of two and of three digits, and what the intervals cover. One pair has none.
CREATE VIEW intervals AS
SELECT *, rowid AS place, iif(coverage IS NULL, '–', printf('%.2f to %.2f', low, high)) AS interval_2,
  iif(coverage IS NULL, '–', printf('%.3f to %.3f', low, high)) AS interval_3,
  iif(coverage IS NULL, '–', iif(coverage < 0.95, '≥ ', '') || printf('%.1f %%', 100 * coverage)) AS covers
FROM comparisons;

-- Our own history. Absolute figures of different days do not compare, so a version is compared with axum in the same run:
-- closed loops of 64 connections, without pipelining and with 16 requests at once.
CREATE VIEW history AS
WITH measured AS (
  SELECT record, iif(cell = 'pipeline', 'pipelined', 'one by one') AS shape, ratio, low, high, coverage, pairs
    FROM comparisons
    WHERE record IN ('2026-11-21-engine', '2026-11-21-engine-2', '2026-11-26-history') AND baseline = 'axum'
      AND server = 'highwater' AND cell IN ('plaintext', 'pipeline')
  UNION ALL
  -- There the baseline was Highwater.
  SELECT record, iif(cell = 'pipeline', 'pipelined', 'one by one'), 1 / ratio, 1 / high, 1 / low, coverage, pairs
    FROM comparisons
    WHERE record = '2026-11-22-framework' AND server = 'axum' AND cell IN ('peak', 'pipeline'))
SELECT versions.*, measured.record, shape, ratio, low, high, pairs,
  iif(coverage IS NULL, '–', printf('%.2f to %.2f', low, high)) AS interval_2,
  iif(coverage IS NULL, '–', iif(coverage < 0.95, '≥ ', '') || printf('%.1f %%', 100 * coverage)) AS covers
FROM measured JOIN records USING (record) JOIN versions USING (commit_hash);

UPDATE versions SET title = 'The engine', technique = 'io_uring, requests parsed in place, one send per turn'
  WHERE tag = 'b74cf62';
UPDATE versions SET title = 'Overload control', technique = 'gates in the kernel, limits that find themselves'
  WHERE tag = '70fa54a';
UPDATE versions SET title = 'Patience', technique = 'nothing is refused that can be answered in time; the re-cut worker'
  WHERE tag = '1d43687';
UPDATE versions SET title = 'Protocols', technique = 'TLS, HTTP/2 and WebSocket; a fifth fewer instructions'
  WHERE commit_hash = (SELECT commit_hash FROM records WHERE record = '2026-11-26-history');

-- What `@metric:tag` and `@git` show: requests per core-second of the closed loop without pipelining, and what that is over axum's.
UPDATE versions SET improvement_percent = (SELECT 100 * (ratio - 1) FROM history
    WHERE history.tag = versions.tag AND shape = 'one by one'),
  baseline_rps = (SELECT requests_per_core_second FROM summaries JOIN records USING (record)
    WHERE records.commit_hash = versions.commit_hash AND server = 'highwater'
      AND (record LIKE '%-framework' AND cell = 'peak' OR record NOT LIKE '%-framework' AND cell = 'plaintext')
    ORDER BY record LIMIT 1);
