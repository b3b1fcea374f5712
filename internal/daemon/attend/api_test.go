package attend_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	namespace   = "wmco"
	uid         = "0123-uid"
	secretName  = contract.CallSecretPrefix + uid
	payloadPath = "/api/v1/namespaces/" + namespace + "/services/https:windows-payload:9183/proxy"
	secretsPath = "/api/v1/namespaces/" + namespace + "/secrets"
	csrsPath    = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
)

// api is an API server with the objects that a host uses. It also simulates the operator.
type api struct {
	*httptest.Server
	key *ecdsa.PrivateKey
	ca  *x509.Certificate

	mu      sync.Mutex
	version int
	calls   int
	secret  *corev1.Secret
	watches map[chan metav1.WatchEvent]bool
	csrs    map[string]*certificatesv1.CertificateSigningRequest
	// tokens are the valid tokens. Requests without a token or a certificate are refused. While refuses is set, all
	// requests are refused.
	tokens  map[string]bool
	refuses bool
	// denies makes the operator deny certificate requests, and unsigned leaves them pending.
	denies, unsigned bool
	// id is the ID of the host that may answer calls. If it is empty, the first certificate request sets it, and this
	// request must contain an address.
	id    string
	blobs map[string]string
	// asked lists the requests: user, verb and path.
	asked []string
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{watches: map[chan metav1.WatchEvent]bool{}, csrs: map[string]*certificatesv1.CertificateSigningRequest{},
		id: uid, tokens: map[string]bool{"token-1": true}, blobs: map[string]string{}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.create()
	a.Server = httptest.NewUnstartedServer(a)
	a.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	a.StartTLS()
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

// serverCA returns the CA that hosts trust.
func (a *api) serverCA() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw}))
}

// create creates the Secret of the instance again.
func (a *api) create() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.secret = &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: secretName, Namespace: namespace, UID: types.UID(strconv.Itoa(a.version))},
		Data:       map[string][]byte{}}
	a.changed("ADDED")
}

// remove deletes the Secret.
func (a *api) remove() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed("DELETED")
	a.secret = nil
}

// changed sends an event to the watches of the Secret. The caller must hold the lock.
func (a *api) changed(event string) {
	a.version++
	a.secret.ResourceVersion = strconv.Itoa(a.version)
	for w := range a.watches {
		w <- metav1.WatchEvent{Type: event}
	}
}

// call writes a call as the operator does, and returns its ID.
func (a *api) call(program contract.Blob, verb contract.Verb, request any) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	call := contract.Call{ID: fmt.Sprintf("call-%d", a.calls), Program: program, Verb: verb}
	call.Request, _ = json.Marshal(request)
	a.secret.Data[contract.CallRequestField], _ = json.Marshal(call)
	a.changed("MODIFIED")
	return call.ID
}

// read decodes a field of the Secret.
func (a *api) read(field string, into any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.secret != nil {
		_ = json.Unmarshal(a.secret.Data[field], into)
	}
}

func (a *api) host() (h contract.CallHost) {
	a.read(contract.CallHostField, &h)
	return h
}

// with calls change while it holds the server's lock.
func (a *api) with(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// requests counts the requests whose line in asked starts with this text.
func (a *api) requests(line string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.asked {
		if strings.HasPrefix(l, line) {
			n++
		}
	}
	return n
}

func (a *api) who(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		if a.tokens[token] {
			return token
		}
		return ""
	}
	for _, c := range r.TLS.PeerCertificates {
		if c.CheckSignatureFrom(a.ca) == nil {
			return c.Subject.CommonName
		}
	}
	return ""
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: string(reason)})
}

func give(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.URL.Query().Get("watch") == "true" {
		a.watch(w, r)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	who := a.who(r)
	a.asked = append(a.asked, who+" "+r.Method+" "+r.URL.Path)
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch {
	case who == "" || a.refuses:
		fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
	case strings.HasPrefix(r.URL.Path, payloadPath+contract.PayloadServerPath) && a.blobs[name] != "":
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(a.blobs[name]))
	case r.URL.Path == csrsPath && r.Method == http.MethodPost:
		a.request(w, body)
	case strings.HasPrefix(r.URL.Path, csrsPath) && a.csrs[name] != nil:
		a.sign(a.csrs[name])
		give(w, a.csrs[name])
	case strings.HasPrefix(r.URL.Path, csrsPath):
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case who != contract.HostUserPrefix+a.id:
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case r.URL.Path == secretsPath && r.URL.Query().Get("fieldSelector") == "metadata.name="+contract.CallSecretPrefix+a.id:
		list := corev1.SecretList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"},
			ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}}
		if a.secret != nil {
			list.Items = append(list.Items, *a.secret)
		}
		give(w, list)
	case name == contract.CallSecretPrefix+a.id && r.Method == http.MethodPatch && a.secret != nil:
		var patch corev1.Secret
		if json.Unmarshal(body, &patch) != nil {
			fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		for field, content := range patch.Data {
			a.secret.Data[field] = content
		}
		a.changed("MODIFIED")
		give(w, a.secret)
	default:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

// request signs a certificate request at once.
func (a *api) request(w http.ResponseWriter, body []byte) {
	var csr certificatesv1.CertificateSigningRequest
	if json.Unmarshal(body, &csr) != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	if a.csrs[csr.Name] != nil {
		fail(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		return
	}
	a.csrs[csr.Name] = &csr
	if a.denies {
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "TokenUsed",
			Message: "the token was used"}}
	} else {
		block, _ := pem.Decode(csr.Spec.Request)
		parsed, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil || !slices.Equal(parsed.Subject.Organization, []string{contract.HostGroup}) {
			fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		if a.id == "" && len(parsed.IPAddresses) == 1 {
			a.id = strings.TrimPrefix(parsed.Subject.CommonName, contract.HostUserPrefix)
			a.secret.Name = contract.CallSecretPrefix + a.id
		}
		a.sign(&csr)
	}
	give(w, csr)
}

// sign signs a pending request, unless the operator leaves requests pending.
func (a *api) sign(csr *certificatesv1.CertificateSigningRequest) {
	block, _ := pem.Decode(csr.Spec.Request)
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || a.unsigned || len(csr.Status.Conditions) > 0 {
		return
	}
	now := time.Now()
	der, _ := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()),
		Subject: parsed.Subject, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(14 * 24 * time.Hour)}, a.ca,
		parsed.PublicKey, a.key)
	csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (a *api) watch(w http.ResponseWriter, r *http.Request) {
	events := make(chan metav1.WatchEvent, 1000)
	a.mu.Lock()
	allowed := a.who(r) == contract.HostUserPrefix+a.id && !a.refuses
	// This event happened between the list and the watch.
	if since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion")); since < a.version && a.secret != nil {
		events <- metav1.WatchEvent{Type: "MODIFIED"}
	}
	a.watches[events] = true
	last := a.secret
	a.mu.Unlock()
	defer func() { a.with(func() { delete(a.watches, events) }) }()
	if !allowed {
		fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush() //nolint:forcetypeassert // the writer is net/http's own
	for {
		select {
		case event := <-events:
			a.mu.Lock()
			if a.secret != nil {
				last = a.secret
			}
			raw, _ := json.Marshal(last)
			a.mu.Unlock()
			if bytes.Equal(raw, []byte("null")) {
				continue
			}
			event.Object.Raw = raw
			_ = json.NewEncoder(w).Encode(event)
			w.(http.Flusher).Flush() //nolint:forcetypeassert // the writer is net/http's own
		case <-r.Context().Done():
			return
		}
	}
}

// signed lists the names of the certificate requests.
func (a *api) signed() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.csrs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
