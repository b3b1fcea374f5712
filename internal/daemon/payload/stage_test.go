package payload_test

import (
	"bytes"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
)

// trusted returns a certificate for a payload server.
func trusted(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// stager returns a Stager that fetches from the rig's source. ca is the certificate that the ConfigMap contains for the
// source.
func (r *rig) stager(ca string) *payload.Stager {
	client := fake.NewSimpleDynamicClient(runtime.NewScheme(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": contract.PayloadSourceConfigMap, "namespace": "wmco"},
		"data":     map[string]any{contract.PayloadSourceURLs: "https://10.0.0.1", contract.PayloadSourceCA: ca},
	}})
	return payload.NewStager(payload.StagerOptions{Host: r.machine.Host(), Client: client, Namespace: "wmco",
		Node: apiclient.NewWatch(nil, "", clock.RealClock{}), Clock: clock.RealClock{}, Fetched: func() {},
		Source: func([]string, []byte) (payload.Source, error) { return r.source, nil }})
}

func TestADiskThatFillsUpDuringATransferIsReported(t *testing.T) {
	t.Parallel()
	ca := trusted(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "blob")
		r.source.script = []func([]byte) (io.Reader, error){func(rest []byte) (io.Reader, error) {
			r.machine.SetDiskFree(0)
			return bytes.NewReader(rest), nil
		}}
		s := r.stager(ca)
		go s.Run(t.Context())
		s.Need("v", r.want)
		time.Sleep(time.Second)
		if _, problem := s.Need("v", r.want); problem == nil || problem.Reason != contract.ReasonDiskFull {
			t.Errorf("the problem is %v", problem)
		}
	})
}

func TestABlobThatIsGoneSoonAfterItCameIsFetchedAfterAPauseThatGrows(t *testing.T) {
	t.Parallel()
	ca := trusted(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "blob")
		s := r.stager(ca)
		go s.Run(t.Context())
		var fetched time.Time
		// need deletes the blob and requests it again. took is the time since the previous fetch. For the first fetch,
		// took is the time since the request.
		need := func() (took time.Duration, problem *contract.Problem) {
			if err := payload.NewStore(r.machine.Host().Files).Drop(r.want[0].Digest); err != nil {
				t.Fatal(err)
			}
			before := r.source.count()
			if fetched.IsZero() {
				fetched = time.Now()
			}
			_, problem = s.Need("v", r.want)
			for r.source.count() == before {
				time.Sleep(time.Second / 10)
				synctest.Wait()
			}
			took, fetched = time.Since(fetched), time.Now()
			s.Content()
			time.Sleep(time.Second)
			return took, problem
		}
		if took, problem := need(); took > time.Second || problem != nil {
			t.Errorf("the first fetch took %s, %v", took, problem)
		}
		for _, seconds := range []float64{5, 10, 20, 40, 80, 120, 120} {
			took, problem := need()
			if took.Seconds() < seconds*3/4 || took.Seconds() > seconds*5/4 {
				t.Errorf("the fetch came after %s, want about %v s", took, seconds)
			}
			if problem == nil || problem.Reason != contract.ReasonPayloadIncomplete ||
				!strings.Contains(problem.Detail, "virus scanner") {
				t.Errorf("the problem is %v", problem)
			}
		}
		time.Sleep(2 * time.Hour)
		fetched = time.Time{}
		if took, problem := need(); took > time.Second || problem != nil {
			t.Errorf("after hours without a loss, the fetch took %s, %v", took, problem)
		}
	})
}
