// fake-gcs-server, with the compose request as Google documents it.
//
// The emulator's own compose ignores preconditions and the generations of its sources, keeps the content type and
// times of an object that it replaces, and answers 500 for a source that is not there. All other requests go to the
// emulator as they are. See https://cloud.google.com/storage/docs/json_api/v1/objects/compose.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"sync"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

const maxSources = 32

var composePath = regexp.MustCompile(`^/storage/v1/b/([^/]+)/o/([^/]+)/compose$`)

type composeRequest struct {
	SourceObjects []struct {
		Name                string
		Generation          string
		ObjectPreconditions struct{ IfGenerationMatch string }
	}
	Destination struct {
		ContentType  string
		StorageClass string
		Metadata     map[string]string
	}
}

type server struct {
	emulator *fakestorage.Server
	// Uploads share it and compose has it alone: nothing changes between its check and its write.
	writing sync.RWMutex
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	matched := composePath.FindStringSubmatch(r.URL.EscapedPath())
	switch {
	case r.Method == http.MethodPost && matched != nil:
		bucket, _ := url.PathUnescape(matched[1])
		target, _ := url.PathUnescape(matched[2])
		if status, message := s.compose(bucket, target, r); status != http.StatusOK {
			refuse(w, status, message)
			return
		}
		get, _ := http.NewRequest(http.MethodGet, "/storage/v1/b/"+matched[1]+"/o/"+matched[2], nil)
		get.Host = r.Host
		s.emulator.HTTPHandler().ServeHTTP(w, get)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		s.emulator.HTTPHandler().ServeHTTP(w, r)
	default:
		s.writing.RLock()
		defer s.writing.RUnlock()
		s.emulator.HTTPHandler().ServeHTTP(w, r)
	}
}

func (s *server) compose(bucket, target string, r *http.Request) (int, string) {
	var request composeRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return http.StatusBadRequest, "Parse Error"
	}
	if len(request.SourceObjects) < 1 || len(request.SourceObjects) > maxSources {
		return http.StatusBadRequest, fmt.Sprintf("1 to %d source objects, not %d", maxSources, len(request.SourceObjects))
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if wanted := r.URL.Query().Get("ifGenerationMatch"); wanted != "" && wanted != s.generation(bucket, target) {
		return http.StatusPreconditionFailed, "At least one of the pre-conditions you specified did not hold."
	}
	composed := fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{
		BucketName:  bucket,
		Name:        target,
		ContentType: request.Destination.ContentType,
		Metadata:    request.Destination.Metadata,
	}}
	for i, source := range request.SourceObjects {
		object, err := s.emulator.GetObject(bucket, source.Name)
		found := strconv.FormatInt(object.Generation, 10)
		if err != nil || (source.Generation != "" && source.Generation != found) {
			return http.StatusNotFound, fmt.Sprintf("No such object: %s/%s", bucket, source.Name)
		}
		if wanted := source.ObjectPreconditions.IfGenerationMatch; wanted != "" && wanted != found {
			return http.StatusPreconditionFailed, "Source object's generation does not match."
		}
		if i > 0 && object.StorageClass != composed.StorageClass {
			return http.StatusBadRequest, "The source objects must have the same storage class."
		}
		composed.StorageClass = object.StorageClass
		composed.Content = append(composed.Content, object.Content...)
	}
	s.emulator.CreateObject(composed)
	return http.StatusOK, ""
}

func (s *server) generation(bucket, name string) string {
	object, err := s.emulator.GetObject(bucket, name)
	if err != nil {
		return "0"
	}
	return strconv.FormatInt(object.Generation, 10)
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": status, "message": message}})
}

func main() {
	host := flag.String("host", "127.0.0.1", "address to listen at")
	port := flag.Int("port", 4443, "port to listen at")
	root := flag.String("filesystem-root", "", "where to keep the objects; in memory if empty")
	flag.Parse()
	address := net.JoinHostPort(*host, strconv.Itoa(*port))
	emulator, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener:      true,
		Scheme:          "http",
		StorageRoot:     *root,
		ExternalURL:     "http://" + address,
		PublicHost:      address,
		BucketsLocation: "US-CENTRAL1",
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(address, &server{emulator: emulator}))
}
