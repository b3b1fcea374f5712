package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	memorySettings = "settings"
	memoryFacts    = "facts"
)

// maxMemory is the maximum size in bytes of the Secret's content: the settings, and as many parts of the facts as fit.
// If a part of the facts doesn't fit, the operator keeps this part only in memory.
const maxMemory = 768 << 10

// memory contains the last valid value of each part of the facts. After a restart, the operator loads the values that
// the publisher has written to the Secret contract.MemorySecret.
type memory struct {
	mu sync.Mutex
	// parts maps the name of each part to its value. It is nil until load has read the Secret.
	parts map[string]json.RawMessage
}

// load reads the Secret once. If the operator isn't allowed to read the Secret, or can't parse it, load treats the
// Secret as empty: the remembered values matter only while an object of the cluster is missing.
func (m *memory) load(ctx context.Context, reader client.Reader, namespace string) error {
	if m.parts != nil {
		return nil
	}
	secret, err := memorySecret(ctx, reader, namespace)
	if err != nil && !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err) {
		return err
	}
	parts := map[string]json.RawMessage{}
	if json.Unmarshal(secret.Data[memoryFacts], &parts) != nil {
		parts = map[string]json.RawMessage{}
	}
	m.parts = parts
	return nil
}

func memorySecret(ctx context.Context, reader client.Reader, namespace string) (secret corev1.Secret, err error) {
	err = reader.Get(ctx, keyIn(namespace, contract.MemorySecret), &secret)
	if client.IgnoreNotFound(err) != nil {
		return secret, fmt.Errorf("reading Secret %s: %w", contract.MemorySecret, err)
	}
	return secret, nil
}

// The function `last` calls `read`, and remembers the result as the given part of the facts. If the part's object is
// missing, unreadable or invalid, last returns the remembered value, and adds a problem with the object's name to
// facts.Troubles. If no value is remembered, if the error is temporary, or if Windows nodes can't use the value, last
// returns the results of `read` unchanged. T must survive encoding as JSON. `read` must return a complete value.
func last[T any](ctx context.Context, c *common, facts *blueprint.Facts, part string,
	read func() (T, error)) (value T, err error) {
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	if err = c.memory.load(ctx, c.Cached, c.Namespace); err != nil {
		return value, err
	}
	value, err = read()
	if err == nil {
		raw, err := json.Marshal(value)
		if err != nil {
			return value, fmt.Errorf("remembering %s: %w", part, err)
		}
		c.memory.parts[part] = raw
		return value, nil
	}
	var before T
	problems, raw := Problems(err), c.memory.parts[part]
	if len(problems) == 0 || slices.ContainsFunc(problems, isRefusal) || json.Unmarshal(raw, &before) != nil {
		return value, err
	}
	for _, p := range problems {
		trouble := contract.NewProblem(p.Reason, "%s; what was read last stays in force", p.Detail)
		if !slices.ContainsFunc(facts.Troubles, func(t *contract.Problem) bool { return contract.Same(t, trouble) }) {
			facts.Troubles = append(facts.Troubles, trouble)
		}
	}
	return before, nil
}

type origin struct {
	reader client.Reader
	key    client.ObjectKey
	name   string
}

func named(reader client.Reader, name, text string) origin {
	return origin{reader, client.ObjectKey{Name: name}, text}
}

// lastOf calls `last` for a part of the facts that comes from one object. parse extracts the part from the object.
func lastOf[T, O any, P interface {
	*O
	client.Object
}](ctx context.Context, c *common, facts *blueprint.Facts, from origin, parse func(P) (T, error)) (T, error) {
	return last(ctx, c, facts, from.name, func() (value T, err error) {
		object := P(new(O))
		if err = get(ctx, from.reader, object, from.key, from.name); err != nil {
			return value, err
		}
		return parse(object)
	})
}

// isRefusal reports whether an object was read, but Windows nodes can't use its content.
func isRefusal(p *contract.Problem) bool { return p.Reason != contract.ReasonClusterFactsIncomplete }

// absentError is the problem that an object does not exist. A cluster may lack some objects.
type absentError struct{ *contract.Problem }

func (e absentError) Unwrap() error { return e.Problem }

func absent(format string, args ...any) error { return absentError{incomplete(format, args...)} }

func isAbsent(err error) bool { return errors.As(err, new(absentError)) }

// orNone drops the error of the function `last`, if the object doesn't exist and was never read.
func orNone[T any](value T, err error) (T, error) {
	if isAbsent(err) {
		return value, nil
	}
	return value, err
}

// orWait does the same as orNone. In addition, if the object exists but was never read successfully, orWait moves the
// problem to facts.Lacks. Then no host can join, but nodes that have joined still get changes of other facts.
func orWait[T any](facts *blueprint.Facts, value T, err error) (T, error) {
	if problem, ok := contract.AsProblem(err); ok && !isAbsent(err) {
		facts.Lacks = append(facts.Lacks, problem)
		return *new(T), nil
	}
	return orNone(value, err)
}

// Settings returns the WindowsMachineConfig. If it doesn't exist, Settings returns the result of Remembered, which has
// no resourceVersion.
func Settings(ctx context.Context, reader client.Reader, namespace string) (*v1alpha1.WindowsMachineConfig, error) {
	config := &v1alpha1.WindowsMachineConfig{}
	err := reader.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return Remembered(ctx, reader, namespace)
	case err != nil:
		return nil, fmt.Errorf("reading the WindowsMachineConfig: %w", err)
	}
	return config, nil
}

// Remembered returns the WindowsMachineConfig that was last in force: its spec, its published revision and the accepted
// configuration of kubelet. If there has never been one, the result is empty.
func Remembered(ctx context.Context, reader client.Reader, namespace string) (*v1alpha1.WindowsMachineConfig, error) {
	config := &v1alpha1.WindowsMachineConfig{}
	secret, err := memorySecret(ctx, reader, namespace)
	if text := secret.Data[memorySettings]; err == nil && len(text) > 0 {
		if err = json.Unmarshal(text, config); err != nil {
			err = fmt.Errorf("parsing %s of the Secret %s: %w", memorySettings, contract.MemorySecret, err)
		}
	}
	return config, err
}

// Memory returns the data for the Secret contract.MemorySecret: the settings in force, and the parts of the facts that
// fit. If config has no name, there has never been a WindowsMachineConfig, and Memory omits the settings.
func Memory(config *v1alpha1.WindowsMachineConfig, facts map[string]json.RawMessage) (map[string][]byte, error) {
	data := map[string][]byte{}
	if config.Name != "" {
		text, err := json.Marshal(&v1alpha1.WindowsMachineConfig{
			ObjectMeta: metav1.ObjectMeta{Name: config.Name}, Spec: config.Spec,
			Status: v1alpha1.WindowsMachineConfigStatus{
				DesiredRevision: config.Status.DesiredRevision, Kubelet: config.Status.Kubelet}})
		if err != nil {
			return nil, fmt.Errorf("encoding the settings in force: %w", err)
		}
		data[memorySettings] = text
	}
	kept, size := map[string]json.RawMessage{}, len(data[memorySettings])
	for _, part := range slices.Sorted(maps.Keys(facts)) {
		if size+len(facts[part]) <= maxMemory {
			kept[part] = facts[part]
			size += len(facts[part])
		}
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return nil, fmt.Errorf("encoding the last facts: %w", err)
	}
	data[memoryFacts] = text
	return data, nil
}

func (r *common) Remember(ctx context.Context) (map[string]json.RawMessage, error) {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	err := r.memory.load(ctx, r.Cached, r.Namespace)
	return maps.Clone(r.memory.parts), err
}
