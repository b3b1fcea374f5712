package resolver_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

const source = "registry.test:5000"

type faultFunc = func(w http.ResponseWriter, r *http.Request) bool

// status answers all requests with a status.
func status(code int) faultFunc {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(code)
		return true
	}
}

// silent never answers. It ends when the client has closed the connection.
func silent(_ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// body answers every GET with these headers and bytes, and every HEAD correctly.
func body(content []byte, headers ...string) faultFunc {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			return false
		}
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		_, _ = w.Write(content)
		return true
	}
}

// cut closes the connection after n bytes of the body.
func cut(u *upstream, n int) faultFunc {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			return false
		}
		u.serve(&cutter{ResponseWriter: w, left: n}, r)
		return true
	}
}

type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

// stall sends n bytes and then nothing.
func stall(u *upstream, n int) faultFunc {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			return false
		}
		u.serve(&staller{ResponseWriter: w, left: n, done: r.Context().Done()}, r)
		return true
	}
}

// onceOnly injects a fault into the first request only, and answers all later requests with 404. On a busy machine, the
// other source may also stall, and then the resolver asks this source again.
func onceOnly(fault faultFunc) faultFunc {
	var was atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) bool {
		if was.Swap(true) {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return fault(w, r)
	}
}

type staller struct {
	http.ResponseWriter
	left int
	done <-chan struct{}
}

func (s *staller) Write(p []byte) (int, error) {
	if len(p) > s.left {
		_, _ = s.ResponseWriter.Write(p[:s.left])
		_ = http.NewResponseController(s.ResponseWriter).Flush()
		<-s.done
		panic(http.ErrAbortHandler)
	}
	s.left -= len(p)
	return s.ResponseWriter.Write(p)
}

// changed flips one bit near the end of each GET's body.
func changed(u *upstream) faultFunc {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			return false
		}
		u.serve(&changer{ResponseWriter: w}, r)
		return true
	}
}

type changer struct {
	http.ResponseWriter
	done bool
}

func (c *changer) Write(p []byte) (int, error) {
	if !c.done && len(p) > 0 {
		c.done = true
		q := append([]byte(nil), p...)
		q[len(q)-1] ^= 1
		return c.ResponseWriter.Write(q)
	}
	return c.ResponseWriter.Write(p)
}

func TestAMirrorThatFailsIsPassedOver(t *testing.T) {
	t.Parallel()
	small, large := newImage(1, 100_000), newImage(2, 5<<20)
	faults := map[string]struct {
		fault                  func(u *upstream) faultFunc
		reason                 resolver.Reason
		manifestOnly, blobOnly bool
	}{
		"says 401": {fault: func(*upstream) faultFunc { return status(401) },
			reason: resolver.ReasonDenied},
		"says 403": {fault: func(*upstream) faultFunc { return status(403) },
			reason: resolver.ReasonDenied},
		"lacks it": {fault: func(*upstream) faultFunc { return status(404) },
			reason: resolver.ReasonNotFound},
		"wants fewer pulls": {fault: func(*upstream) faultFunc { return status(429) },
			reason: resolver.ReasonTooManyRequests},
		"says 500": {fault: func(*upstream) faultFunc { return status(500) },
			reason: resolver.ReasonFailing},
		"says 503": {fault: func(*upstream) faultFunc { return status(503) },
			reason: resolver.ReasonFailing},
		"says 204": {fault: func(*upstream) faultFunc { return status(204) },
			reason: resolver.ReasonFailing},
		"sends headers without end": {fault: func(*upstream) faultFunc {
			return func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("X-Long", strings.Repeat("x", 128<<10))
				w.WriteHeader(http.StatusOK)
				return true
			}
		}, reason: resolver.ReasonFailing},
		"is silent": {fault: func(*upstream) faultFunc { return silent }, reason: resolver.ReasonSlow},
		"stalls after its headers": {fault: func(u *upstream) faultFunc { return stall(u, 0) },
			reason: resolver.ReasonSlow},
		"breaks off at once": {fault: func(*upstream) faultFunc {
			return func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
		}, reason: resolver.ReasonUnreachable},
		"gives another page": {fault: func(*upstream) faultFunc {
			return body([]byte("<html>login</html>"),
				"Content-Type", "text/html")
		}, reason: resolver.ReasonWrongContent},
		"gives encoded content": {fault: func(*upstream) faultFunc {
			return body([]byte("xx"), "Content-Encoding",
				"gzip")
		}, reason: resolver.ReasonWrongContent},
		"redirects to plain http": {fault: func(*upstream) faultFunc {
			return func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, "http://127.0.0.1:1/x", http.StatusTemporaryRedirect)
				return true
			}
		}, reason: resolver.ReasonForbidden},
		"redirects in a circle": {fault: func(*upstream) faultFunc {
			return func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
				return true
			}
		}, reason: resolver.ReasonFailing},
		"redirects to nowhere": {fault: func(*upstream) faultFunc {
			return func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Location", "https://%zz")
				w.WriteHeader(http.StatusFound)
				return true
			}
		}, reason: resolver.ReasonFailing},
		"gives another range": {fault: func(*upstream) faultFunc {
			return func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Content-Range", "bytes 7-9/100000")
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write([]byte("abc"))
				return true
			}
		}, reason: resolver.ReasonWrongContent, blobOnly: true},
	}
	for name, f := range faults {
		for _, what := range []struct {
			name, path string
			content    []byte
			kind       string
			manifest   bool
		}{
			{"manifest by digest", "manifests/" + digestOf(small.index), small.index, "digest", true},
			{"manifest by tag", "manifests/latest", large.index, "tag", true},
			{"small blob", "blobs/" + digestOf(small.layer), small.layer, "digest", false},
			{"large blob", "blobs/" + digestOf(large.layer), large.layer, "digest", false},
		} {
			if what.manifest && f.blobOnly || name == "gives another page" && what.name == "large blob" {
				// Only its size shows that a wrong page is not a large blob. Until the manifest was read, the size is
				// unknown.
				continue
			}
			t.Run(name+": "+what.name, func(t *testing.T) {
				t.Parallel()
				bad, good := newUpstream(t, small, large), newUpstream(t, small, large)
				bad.failing(f.fault(bad))
				o := calm()
				if f.reason == resolver.ReasonSlow {
					o = quick()
				}
				g := newRig(t, o, config(t, source+" "+what.kind+" "+bad.host+"/m "+good.host+"/n never"))
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					a := g.ask(t, method, source, "team/app/"+what.path)
					if method == http.MethodHead {
						if a.status != http.StatusOK ||
							a.header.Get("Docker-Content-Digest") != digestOf(what.content) ||
							a.header.Get("Content-Length") != strconv.Itoa(len(what.content)) {
							t.Errorf("HEAD: %v %v", a, a.header)
						}
						continue
					}
					if !a.isRight(what.content) || a.header.Get("Docker-Content-Digest") != digestOf(what.content) {
						t.Fatalf("GET: %v %v", a, a.header)
					}
					g.report(t)
					reports := g.Reports()
					if len(reports) == 0 || reports[0].IsFailure() || len(reports[0].Attempts) == 0 ||
						reports[0].Attempts[0].Reason != f.reason ||
						reports[0].Attempts[0].Source != bad.host+"/m/team/app" ||
						reports[0].Served != good.host+"/n/team/app" {
						t.Fatalf("reports: %+v", reports)
					}
				}
				if good.asked("/v2/n/team/app/") == 0 {
					t.Error("the second mirror was not asked for the rewritten name")
				}
			})
		}
	}
}

func TestAMirrorThatIsDownIsPassedOverAndNotAskedAgainAtOnce(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	good, dead := newUpstream(t, m), deadHost(t)
	o := calm()
	o.Metrics = resolver.NewMetrics()
	g := newRig(t, o, config(t, source+" digest "+dead+"/m "+good.host+"/n"))
	for range 5 {
		if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
			t.Fatal(a)
		}
	}
	eventually(t, func() bool { r := g.Reports(); return len(r) == 5 })
	families, err := o.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err = expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{
		fmt.Sprintf("wicd_resolver_skipped_total{reason=%q,registry=%q} 5", resolver.ReasonUnreachable, dead),
		fmt.Sprintf("wicd_resolver_served_bytes_total{registry=%q} 5000", good.host),
		"wicd_resolver_failures_total 0",
	} {
		if !strings.Contains(text.String(), line+"\n") {
			t.Errorf("%s is missing in\n%s", line, text.String())
		}
	}
}

func TestTheOnlyPlaceIsAskedEvenIfItWasDead(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	u := newUpstream(t, m)
	u.failing(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	g := newRig(t, calm(), config(t, source+" digest "+u.host+"/m never"))
	if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); a.status != http.StatusBadGateway {
		t.Fatal(a)
	}
	u.failing(nil)
	if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
		t.Fatal(a)
	}
}

func TestASlowMirrorIsWaitedForWhenNobodyElseHasTheImage(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	slow, empty := newUpstream(t, m), newUpstream(t)
	slow.failing(func(_ http.ResponseWriter, r *http.Request) bool {
		select { // longer than FirstByte, shorter than LastFirstByte
		case <-time.After(900 * time.Millisecond):
			return false
		case <-r.Context().Done():
			return true
		}
	})
	g := newRig(t, quick(), config(t, source+" digest "+slow.host+"/m "+empty.host+"/n never"))
	if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
		t.Fatal(a)
	}
}

func TestALargeLayerGoesOnFromAnotherPlaceWhenOneDies(t *testing.T) {
	t.Parallel()
	m := newImage(3, 6<<20)
	for name, fault := range map[string]func(u *upstream) faultFunc{
		"breaks off": func(u *upstream) faultFunc { return cut(u, 2<<20) },
		"stalls":     func(u *upstream) faultFunc { return onceOnly(stall(u, 2<<20)) },
	} {
		for second, prepare := range map[string]func(u *upstream){
			"that knows ranges": func(*upstream) {},
			"that knows none": func(u *upstream) {
				u.failing(func(w http.ResponseWriter, r *http.Request) bool {
					r.Header.Del("Range")
					return false
				})
			},
		} {
			t.Run("one "+name+", the next is one "+second, func(t *testing.T) {
				t.Parallel()
				bad, good := newUpstream(t, m), newUpstream(t, m)
				bad.failing(fault(bad))
				prepare(good)
				o := calm()
				if name == "stalls" {
					o.Stall = quick().Stall
				}
				g := newRig(t, o, config(t, source+" digest "+bad.host+"/m "+good.host+"/n never"))
				if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
					t.Fatal(a)
				}
				g.report(t)
				r := g.Reports()
				if len(r) != 1 || r[0].Attempts[0].Reason != resolver.ReasonBrokenOff ||
					r[0].Served != good.host+"/n/a" {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

func TestALargeLayerGoesOnFromTheSamePlaceWhenThereIsNoOther(t *testing.T) {
	t.Parallel()
	m := newImage(3, 6<<20)
	u := newUpstream(t, m)
	u.failing(cut(u, 2<<20))
	g := newRig(t, calm(), config(t, source+" digest "+u.host+"/m never"))
	if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
		t.Fatal(a, g.Reports())
	}
	if n := u.asked("blobs"); n != 3 {
		t.Errorf("asked %d times", n)
	}
}

func TestWrongBytesAreNeverPassedOffAsComplete(t *testing.T) {
	t.Parallel()
	m := newImage(4, 5<<20)
	path := "a/blobs/" + digestOf(m.layer)
	for name, fault := range map[string]func(u *upstream) faultFunc{
		"one bit is wrong": changed,
		"another blob":     func(*upstream) faultFunc { return body(noise(99, 5<<20)) },
		"a longer one": func(*upstream) faultFunc {
			return body(append(append([]byte(nil), m.layer...), 1, 2,
				3))
		},
		"a shorter one": func(*upstream) faultFunc { return body(m.layer[:len(m.layer)-1]) },
		"of unknown length": func(*upstream) faultFunc {
			return body(noise(98, 3<<20), "Transfer-Encoding",
				"chunked")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lying, good := newUpstream(t, m), newUpstream(t, m)
			lying.failing(fault(lying))
			g := newRig(t, calm(), config(t, source+" digest "+lying.host+"/m "+good.host+"/n never"))
			first := g.ask(t, http.MethodGet, source, path)
			if first.err == nil {
				t.Fatal("the answer looked complete:", first)
			}
			if second := g.ask(t, http.MethodGet, source, path); !second.isRight(m.layer) {
				t.Fatal(second)
			}
			if n := lying.asked("blobs"); n != 1 {
				t.Errorf("the mirror that gave wrong bytes was asked %d times", n)
			}
		})
	}
}

func TestWhoGaveWrongBytesIsAskedAgainWhenNobodyElseIsLeft(t *testing.T) {
	t.Parallel()
	m := newImage(4, 5<<20)
	u := newUpstream(t, m)
	u.failing(changed(u))
	g := newRig(t, calm(), config(t, source+" digest "+u.host+"/m never"))
	if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); a.err == nil {
		t.Fatal(a)
	}
	u.failing(nil)
	if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
		t.Fatal(a)
	}
}

func TestChunkedAnswersAreRight(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 1000, 256 << 10, 1<<20 + 1, 3 << 20} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			t.Parallel()
			m := newImage(5, size)
			u := newUpstream(t, m)
			u.failing(body(m.layer, "Transfer-Encoding", "chunked"))
			g := newRig(t, calm(), config(t, source+" digest "+u.host+"/m never"))
			if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
				t.Fatal(a)
			}
		})
	}
}

func TestPartsOfABlob(t *testing.T) {
	t.Parallel()
	m := newImage(6, 3<<20)
	for name, c := range map[string]struct {
		ask        string
		first, end int
		status     int
		noRanges   bool
	}{
		"from the start":                        {"bytes=0-", 0, 3 << 20, 206, false},
		"from a position":                       {"bytes=1000000-", 1000000, 3 << 20, 206, false},
		"the last byte":                         {"bytes=3145727-", 3145727, 3 << 20, 206, false},
		"of a place without ranges":             {"bytes=1000000-", 1000000, 3 << 20, 206, true},
		"between two positions, answered whole": {"bytes=10-2000000", 0, 3 << 20, 200, false},
		"several at once are answered whole":    {"bytes=0-1,5-6", 0, 3 << 20, 200, false},
		"the last ten are answered whole":       {"bytes=-10", 0, 3 << 20, 200, false},
		"backwards is answered whole":           {"bytes=9-3", 0, 3 << 20, 200, false},
		"nonsense is answered whole":            {"bytes=+1-+2", 0, 3 << 20, 200, false},
		"other units are answered whole":        {"lines=1-2", 0, 3 << 20, 200, false},
		"numbers out of bounds, answered whole": {"bytes=99999999999999999999-", 0, 3 << 20, 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, m)
			u.failing(func(_ http.ResponseWriter, r *http.Request) bool {
				if c.noRanges {
					r.Header.Del("Range")
				}
				return false
			})
			g := newRig(t, calm(), config(t, source+" digest "+u.host+"/m never"))
			a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer), "Range", c.ask)
			if a.status != c.status || a.err != nil || string(a.content) != string(m.layer[c.first:c.end]) {
				t.Fatalf("%v", a)
			}
			if want := fmt.Sprintf("bytes %d-%d/%d", c.first, c.end-1, len(m.layer)); c.status == 206 &&
				a.header.Get("Content-Range") != want {
				t.Errorf("range %q, want %q", a.header.Get("Content-Range"), want)
			}
		})
	}
}

func TestAPartThatBreaksOffGoesOn(t *testing.T) {
	t.Parallel()
	m := newImage(6, 5<<20)
	bad, good := newUpstream(t, m), newUpstream(t, m)
	bad.failing(cut(bad, 1<<20))
	g := newRig(t, calm(), config(t, source+" digest "+bad.host+"/m "+good.host+"/n never"))
	a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer), "Range", "bytes=1000-")
	if a.status != 206 || a.err != nil || string(a.content) != string(m.layer[1000:]) {
		t.Fatal(a)
	}
}

func TestWhenNobodyHasItTheAnswerSaysWhoWasAskedAndWhy(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	for name, c := range map[string]struct {
		first, second int
		want          int
	}{
		"all lack it":                       {404, 404, 404},
		"one refuses, the other lacks it":   {401, 404, 403},
		"one lacks it, the other is broken": {404, 501, 502},
		"one lacks it, the other is busy":   {404, 503, 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := newUpstream(t).failing(status(c.first)), newUpstream(t).failing(status(c.second))
			g := newRig(t, calm(), config(t, source+" tag "+one.host+"/m "+two.host+"/n never"))
			a := g.ask(t, http.MethodGet, source, "a/manifests/v1")
			if a.status != c.want {
				t.Fatal(a)
			}
			for _, want := range []string{`{"errors":[{"code":`, one.host + "/m/a: ", two.host + "/n/a: ",
				fmt.Sprintf("status %d", c.second)} {
				if !strings.Contains(string(a.content), want) {
					t.Errorf("no %q in %s", want, a.content)
				}
			}
			r := g.report(t)
			if !r.IsFailure() || r.Image != source+"/a:v1" || len(r.Attempts) != 2 ||
				!strings.HasPrefix(r.Message(), "Can't pull "+source+"/a:v1. Skipped: ") {
				t.Errorf("%+v: %s", r, r.Message())
			}
		})
	}
	_ = m
}

func TestNobodyToAsk(t *testing.T) {
	t.Parallel()
	g := newRig(t, calm(), config(t, source+" tag never"))
	a := g.ask(t, http.MethodGet, source, "a/manifests/v1")
	if a.status != http.StatusForbidden || !strings.Contains(string(a.content), "the source must never be contacted") {
		t.Fatal(a)
	}
}
