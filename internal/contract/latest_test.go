package contract_test

import (
	"crypto/rand"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
)

func TestWhatWasPublishedLastFitsIntoOneSecretOrOnlyItsNameIsThere(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 600<<10) // random data, which can't be compressed
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ latest, want contract.Latest }{
		"small": {
			contract.Latest{Revision: "1-a", Manifest: map[string]string{"files": "[]"}, Confidential: []byte("c")},
			contract.Latest{Revision: "1-a", Manifest: map[string]string{"files": "[]"}, Confidential: []byte("c")},
		},
		"too large together": {
			contract.Latest{Revision: "1-a", Manifest: map[string]string{"files": hex.EncodeToString(noise)},
				Confidential: noise}, contract.Latest{Revision: "1-a"},
		},
		"a manifest that is too large": {
			contract.Latest{Revision: "1-a", Manifest: map[string]string{"files": strings.Repeat("a", 17<<20)}},
			contract.Latest{Revision: "1-a"},
		},
	} {
		data, err := c.latest.Data()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := contract.ParseLatest(data); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: it decodes to %.200q, %v", name, got.Revision, err)
		}
	}
}

func TestADamagedSecretOfWhatWasPublishedLastIsToldFromNone(t *testing.T) {
	t.Parallel()
	for _, damaged := range []string{"", "junk"} {
		if _, err := contract.ParseLatest(map[string][]byte{"version": []byte("1-a"),
			"manifest.gz": []byte(damaged)}); err == nil {
			t.Errorf("%q is read", damaged)
		}
	}
	if got, err := contract.ParseLatest(nil); err != nil || got.Revision != "" {
		t.Errorf("an empty Secret decodes to %+v, %v", got, err)
	}
}
