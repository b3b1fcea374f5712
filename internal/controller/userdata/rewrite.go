package userdata

import "time"

// Somebody else may take the secret for theirs, too, such as another operator or a GitOps tool. To
// answer each of their writes at once would have both write for ever.
const (
	// freeRewrites is how often the same script is restored at once.
	freeRewrites = 3
	// rewritePause is the pause before the next time; it doubles up to rewriteLimit.
	rewritePause = 20 * time.Second
	rewriteLimit = 10 * time.Minute
	// rewriteMemory is how long nothing must have been restored for it to be forgotten.
	rewriteMemory = 30 * time.Minute
)

// rewrites counts, by namespace, how often the same script was restored.
type rewrites map[string]rewrite

type rewrite struct {
	script string
	count  int
	last   time.Time
}

// next answers how long to wait before a script is restored, 0 for not at all: then it counts as
// restored. count is how often it was before.
func (r rewrites) next(namespace, script string, now time.Time) (wait time.Duration, count int) {
	past := r[namespace]
	if past.script != script || now.Sub(past.last) >= rewriteMemory {
		past = rewrite{script: script}
	}
	if past.count >= freeRewrites {
		pause := min(rewritePause<<min(past.count-freeRewrites, 16), rewriteLimit)
		if wait = pause - now.Sub(past.last); wait > 0 {
			return wait, past.count
		}
	}
	r[namespace] = rewrite{script: script, count: past.count + 1, last: now}
	return 0, past.count
}
