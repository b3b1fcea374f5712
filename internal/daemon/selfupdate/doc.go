// Package selfupdate replaces the daemon's own program, and restores the previous program if the new one fails to
// start.
//
// If a manifest contains another daemon, that daemon applies the manifest, because only it understands the whole
// manifest:
//
//	old: smoke test ── does not run here: failed, nothing has changed
//	     write down the program on trial ── replace the exe ── end
//	new: count the start ── apply ──┬─ the API server answers, its revision is verified or it ran a minute: accepted
//	                                ├─ its revision fails: roll back, including the exe ── end
//	                                └─ crashes, or is not accepted by the deadline: end
//	     third start, or a start after the deadline: restore the old exe, write down what failed ── end
//	old: keep the previous revision; the state file says what failed, and when it may be tried again
//
// At each "end", the daemon exits with an error, and the service manager starts the program that is installed at that
// time. If a daemon crashes at any point, the service manager starts it again, and it continues from the state file.
package selfupdate
