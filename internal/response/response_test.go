package response_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/response"
)

func TestA51_AnAnswerOfTheBoundIsReadAndALongerOneFails(t *testing.T) {
	t.Parallel()
	const most = 8 << 20
	for name, size := range map[string]int{"empty": 0, "one less": most - 1, "exactly": most, "one more": most + 1,
		"much more": 3 * most} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat("x", size))
			}))
			defer server.Close()
			client := &http.Client{Transport: response.Transport(http.DefaultTransport, most)}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = answer.Body.Close() }()
			read, err := io.ReadAll(answer.Body)
			if len(read) != min(size, most) || response.IsTooLarge(err) != (size > most) || (err != nil) != (size > most) {
				t.Errorf("read %d of %d bytes, then %v", len(read), size, err)
			}
		})
	}
}
